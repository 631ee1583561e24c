"""Small real files of each kind: PDFs, and corpora in the published formats."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any


def pdf(*pages: str, title: str = "") -> bytes:
    """A PDF with some lines of text on each page."""
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({title}) >>".encode(),
    ]
    for number, text in enumerate(pages):
        shown = " T* ".join(f"({line}) Tj" for line in text.split("\n"))
        content = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET".encode()
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R >>" % (6 + 2 * number)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(out)
    size = len(objects) + 1
    out += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    return out + b"trailer\n<< /Size %d /Root 1 0 R /Info 4 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, start)


def encrypted_pdf(password: str) -> bytes:
    """A PDF that a password opens."""
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("secret")))
    writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def bookmarked_pdf(content: bytes, *bookmarks: tuple[str, int, int | None]) -> bytes:
    """A PDF with bookmarks: each a title, a page from 0, and the place of the bookmark that it is below."""
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(content))
    items: list[Any] = []
    for title, page, parent in bookmarks:
        items.append(writer.add_outline_item(title, page, None if parent is None else items[parent]))
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def read_corpus(folder: Path) -> list[dict]:
    """The passages of a corpus folder."""
    return [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]


def read_skipped(folder: Path) -> dict[str, str]:
    """The reason for each name in `skipped.jsonl`."""
    records = [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]
    return {record["name"]: record["reason"] for record in records}


STYLES = {"Title": "Title", "Heading 1": "Heading1", "Heading 2": "Heading2"}


def docx(*paragraphs):
    """A Word file: a text is a paragraph, a pair a style's name and a text, a list of lists of texts a table."""
    parts = "".join(map(_of_word, paragraphs))
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    packages = "http://schemas.openxmlformats.org/package/2006"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{name}"/></w:style>'
        for name, id in STYLES.items()
    )
    types = "".join(
        f'<Override PartName="/word/{part}.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        f'wordprocessingml.{part}{"" if part == "styles" else ".main"}+xml"/>'
        for part in ("document", "styles")
    )
    files = {
        "[Content_Types].xml": f'<Types xmlns="{packages}/content-types">{types}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{packages}/relationships"><Relationship Id="r1" '
        f'Type="{relations}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{packages}/relationships"><Relationship Id="r1" '
        f'Type="{relations}/styles" Target="styles.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{main}"><w:body>{parts}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{main}">{styles}</w:styles>',
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return content.getvalue()


def _of_word(part):
    if isinstance(part, list):
        rows = ("".join(f"<w:tc>{_of_word(cell)}</w:tc>" for cell in row) for row in part)
        return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>"
    style, text = part if isinstance(part, tuple) else ("", part)
    properties = f'<w:pPr><w:pStyle w:val="{STYLES[style]}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"
