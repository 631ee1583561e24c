"""Small real files of each kind: PDFs, and corpora in the published formats."""

import io
import json
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
