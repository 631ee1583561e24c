"""A folder of documents, and the bad input in it."""

import io
import json
import os
import struct
import time
import zipfile

import parsers
import pypdf
import pytest
from corpus_files import bookmarked_pdf, docx, encrypted_pdf, pdf, read_corpus, read_skipped

from notewriter.corpora import corpus, extraction, reading, splitting
from notewriter.datasets import load_corpus
from notewriter.ground.errors import UserError

PAGE = """<html><head><title>River Osk</title></head><body><nav><a href=/>Home</a></nav><article>
<h1>The Osk</h1><p>The Osk is a river that reaches the sea at the town of Tolen.</p>
<h2>History</h2><p>Tolen was founded in 1871 by the bridge keeper Mira Tolen.</p>
<table><tr><th>Year</th><th>People</th></tr><tr><td>1900</td><td>300</td></tr></table></article>
<footer>All rights reserved</footer></body></html>"""


def build(folder, output, *options):
    corpus.main(["--source", "folder", "--path", str(folder), "--output_dir", str(output), *options])
    return read_corpus(output)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


def test_each_kind_of_file_is_read(folder, tmp_path):
    (folder / "sub").mkdir()
    (folder / "sub" / "notes.md").write_text("# Notes\n\nThe church of Varn was built in 1702.\n")
    (folder / "page.html").write_text(PAGE)
    (folder / "paper.pdf").write_bytes(pdf("The Osk is a river.", "Varn is a village.", title="Rivers"))
    (folder / "plain.txt").write_text("Varn is a village in the hills.")
    passages = {passage["id"]: passage for passage in build(folder, tmp_path / "corpus", "--size", "6")}
    assert next(iter(passages)) == "page.html#1"
    assert passages["plain.txt#1"]["title"] == "plain"
    assert passages["sub/notes.md#1"] | {"text": ""} == {
        "id": "sub/notes.md#1",
        "title": "Notes",
        "text": "",
        "origin": {"file": "sub/notes.md", "headings": ["Notes"], "span": [9, 37]},
    }
    assert passages["paper.pdf#2"] == {
        "id": "paper.pdf#2",
        "title": "Rivers",
        "text": "Varn is a village.",
        "origin": {"file": "paper.pdf", "page": 2, "span": [21, 39]},
    }
    history = next(each for each in passages.values() if each["origin"].get("headings") == ["The Osk", "History"])
    assert history["title"] == "The Osk > History"
    text = " ".join(each["text"] for each in passages.values())
    assert "| 1900 | 300 |" in text
    assert "Home" not in text and "rights" not in text


def test_a_word_file_has_its_headings_and_tables(folder, tmp_path):
    """Built by hand, so that it has what Word writes: styles by id, their names in a part of their own."""
    (folder / "osk.docx").write_bytes(
        docx(
            ("Title", "The Osk"),
            ("Heading 1", "History"),
            "Tolen was founded in 1871 by the bridge keeper Mira Tolen.",
            ("Heading 2", "People"),
            [["Year", "People"], ["1900", "300"]],
            ("Heading 1", "Course"),
            "The Osk reaches the sea at Tolen.",
        )
    )
    (folder / "plain.docx").write_bytes(docx("Varn is a village in the hills."))
    passages = build(folder, tmp_path / "corpus")
    assert [passage["title"] for passage in passages] == [
        "The Osk > History",
        "The Osk > History > People",
        "The Osk > Course",
        "plain",
    ]
    assert passages[1]["text"].endswith("| 1900 | 300 |")


def test_a_damaged_word_file_and_one_that_unpacks_to_too_much_are_named(folder, tmp_path, monkeypatch):
    (folder / "kept.txt").write_text("The Osk is a river.")
    (folder / "cut.docx").write_bytes(docx("Varn is a village.")[:-200])
    (folder / "flipped.docx").write_bytes(with_flipped_part(docx("Varn is a village.")))
    (folder / "long.docx").write_bytes(docx("Varn is a village. " * 2_000_000))
    assert [passage["id"] for passage in build(folder, tmp_path / "corpus")] == ["kept.txt#1"]
    reasons = read_skipped(tmp_path / "corpus")
    assert all("is a damaged or encrypted Word file" in reasons[name] for name in ("cut.docx", "flipped.docx"))
    assert "is larger than 20 MB" in reasons["long.docx"]


def test_the_loaders_of_the_project_read_it(folder, tmp_path):
    (folder / "a.md").write_text("# A\n\nThe Osk is a river.\n")
    build(folder, tmp_path / "corpus")
    (passage,) = load_corpus("jsonl", tmp_path / "corpus" / "corpus.jsonl")
    assert (passage.id, passage.title) == ("a.md#1", "A")


def test_what_cannot_be_used_is_named_with_the_reason_and_the_rest_is_kept(folder, tmp_path, capsys):
    (folder / "good.txt").write_text("The Osk is a river.")
    (folder / "cut.pdf").write_bytes(pdf("text")[:150])
    (folder / "junk.pdf").write_bytes(b"%PDF-1.4\n" + bytes(range(256)) * 20)
    (folder / "scan.pdf").write_bytes(pdf(""))
    (folder / "locked.pdf").write_bytes(encrypted_pdf("secret"))
    (folder / "empty.md").touch()
    (folder / "blank.md").write_text(" \n\n")
    (folder / "latin.txt").write_bytes("café crème".encode("latin-1"))
    (folder / "binary.txt").write_bytes(b"a\0b")
    (folder / "line\nbreak.md").write_text("text")
    (folder / "picture.png").write_bytes(b"png")
    (folder / "nothing.html").write_text("<html></html>")
    os.symlink(folder, folder / "loop")
    os.symlink("self.md", folder / "self.md")
    os.symlink("gone.md", folder / "dangling.md")
    os.mkfifo(folder / "pipe.md")
    with open(folder / "huge.txt", "wb") as file:
        file.truncate(200_000_000)
    with open(os.fsencode(folder) + b"/caf\xe9.md", "wb") as file:
        file.write(b"text")
    assert [passage["text"] for passage in build(folder, tmp_path / "corpus")] == ["The Osk is a river."]
    reasons = read_skipped(tmp_path / "corpus")
    for name, reason in {
        "cut.pdf": "damaged PDF",
        "junk.pdf": "damaged PDF",
        "scan.pdf": "no text",
        "locked.pdf": "encrypted",
        "empty.md": "is empty",
        "blank.md": "no text",
        "latin.txt": "not UTF-8",
        "binary.txt": "NUL",
        "line\nbreak.md": "line break",
        "picture.png": "none of the endings",
        "nothing.html": "no",
        "loop": "link to a folder",
        "self.md": "circular link",
        "dangling.md": "broken",
        "pipe.md": "not a regular file",
        "huge.txt": "larger than 50 MB",
    }.items():
        assert reason in reasons.pop(name)
    assert list(reasons.values()) == ["has a name that is not UTF-8; rename it"]
    output = capsys.readouterr().out
    assert "skipped: 17" in output
    assert "1 passages of 1 documents" in output


def test_nothing_kept_is_an_error_that_says_why(folder, tmp_path):
    (folder / "empty.md").touch()
    with pytest.raises(UserError, match=r"nothing could be kept \(1 is empty\)"):
        build(folder, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_an_encrypted_pdf_that_needs_no_password_is_read(folder, tmp_path):
    (folder / "a.pdf").write_bytes(encrypted_pdf(""))
    assert build(folder, tmp_path / "corpus")[0]["text"] == "secret"


def test_words_that_a_pdf_divides_at_the_end_of_a_line_are_whole(folder, tmp_path):
    lines = "The ferry was impor-\ntant to the mer-\nchants of a well-known town, a well-\nknown one."
    (folder / "a.pdf").write_bytes(pdf(lines))
    (passage,) = build(folder, tmp_path / "corpus")
    assert " ".join(passage["text"].split()) == (
        "The ferry was important to the merchants of a well-known town, a well-known one."
    )


def test_running_heads_and_page_numbers_are_no_text_of_a_pdf(folder, tmp_path):
    pages = [
        f"Chapter 2: Ferries {n}\nThe ferry {word} crosses\nthe river to {word}.\n{n}" for n, word in enumerate("abcd")
    ]
    (folder / "a.pdf").write_bytes(pdf(*pages))
    text = " ".join(passage["text"] for passage in build(folder, tmp_path / "corpus"))
    assert text.split() == [
        word for each in "abcd" for word in ("The", "ferry", each, "crosses", "the", "river", "to", f"{each}.")
    ]


@pytest.mark.parametrize("foot", ["Total: {} euros", "{} 0 0"])
def test_lines_of_a_pdf_that_differ_in_a_number_are_text(folder, tmp_path, foot):
    lasts = [foot.format(number) for number in (111, 275, 90)]
    (folder / "a.pdf").write_bytes(pdf(*(f"Ferry {word}\n{last}" for word, last in zip("abc", lasts, strict=True))))
    text = " ".join(passage["text"] for passage in build(folder, tmp_path / "corpus"))
    assert text.split() == " ".join(f"Ferry {word} {last}" for word, last in zip("abc", lasts, strict=True)).split()


@pytest.mark.parametrize(
    "feet", [["iii", "iv", "v"], [f"{n} of 30" for n in (7, 8, 9)], [f"Part 2, page {n} of 30" for n in (9, 10, 11)]]
)
def test_a_page_number_may_be_roman_or_beside_others(folder, tmp_path, feet):
    (folder / "a.pdf").write_bytes(pdf(*(f"Ferry {word}\n{foot}" for word, foot in zip("abd", feet, strict=True))))
    text = " ".join(passage["text"] for passage in build(folder, tmp_path / "corpus"))
    assert text.split() == ["Ferry", "a", "Ferry", "b", "Ferry", "d"]


def filled_form(label, value):
    """A PDF of one page, with a field beside its label."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf(label)))
    page, name = writer.pages[0], pypdf.generic.NameObject
    parts = "<< /Type /Annot /Subtype /Widget /FT /Tx /T (n) /F 4 /DA (/Helv 12 Tf 0 g) /Rect [200 715 400 735] >>"
    field = writer._add_object(pypdf.generic.DictionaryObject.read_from_stream(io.BytesIO(parts.encode()), writer))
    page[name("/Annots")] = pypdf.generic.ArrayObject([field])
    form = {name("/Fields"): pypdf.generic.ArrayObject([field])}
    writer._root_object[name("/AcroForm")] = pypdf.generic.DictionaryObject(form)
    writer.update_page_form_field_values(page, {"n": value})
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_what_is_filled_in_a_form_is_text_of_a_pdf(folder, tmp_path):
    (folder / "a.pdf").write_bytes(filled_form("Name", "Anna Meyer"))
    (passage,) = build(folder, tmp_path / "corpus")
    assert passage["text"].split() == ["Name", "Anna", "Meyer"]


def test_a_pdf_without_a_title_of_its_own_is_called_by_its_file(folder, tmp_path):
    (folder / "varn.pdf").write_bytes(pdf("Varn is a village.", title="untitled"))
    assert build(folder, tmp_path / "corpus")[0]["title"] == "varn"


def test_bookmarks_of_a_pdf_are_its_headings(folder, tmp_path):
    content = pdf(
        "Ferries are old.\n1.1 Ropes\nRopes are of hemp.", "2 Fares\nA ride costs two pence.", title="Ferries"
    )
    (folder / "a.pdf").write_bytes(bookmarked_pdf(content, ("Boats", 0, None), ("Ropes", 0, 0), ("Fares", 1, None)))
    passages = build(folder, tmp_path / "corpus")
    assert [(each["title"], each["origin"]["page"]) for each in passages] == [
        ("Ferries > Boats", 1),
        ("Ferries > Boats > Ropes", 1),
        ("Ferries > Fares", 2),
    ]
    assert [" ".join(each["text"].split()) for each in passages] == [
        "Ferries are old.",
        "1.1 Ropes Ropes are of hemp.",
        "2 Fares A ride costs two pence.",
    ]


def test_ligatures_are_letters_in_every_kind_of_file(folder, tmp_path):
    (folder / "a.md").write_text("# The ﬁrst\n\nThe oﬃce sold ﬂour.\n")
    (folder / "b.txt").write_text("The oﬃce sold ﬂour.")
    (folder / "c.html").write_text("<p>The oﬃce sold ﬂour.</p>")
    passages = build(folder, tmp_path / "corpus")
    assert {each["text"].splitlines()[-1] for each in passages} == {"The office sold flour."}
    assert passages[0]["title"] == "The first"


def test_byte_order_marks_and_line_ends_do_not_matter(folder, tmp_path):
    (folder / "a.txt").write_bytes("The Osk\r\nis a river.".encode("utf-16"))
    (folder / "b.txt").write_bytes("The Osk\nis a river.".encode("utf-8-sig"))
    assert [passage["text"] for passage in build(folder, tmp_path / "corpus")] == ["The Osk\nis a river."] * 2


def test_digits_that_are_raised_in_a_pdf_are_powers(folder, tmp_path):
    """10 to the 6th is not 106; indices below the line, ranges and numbers of another size stay as they are."""
    raised, lowered = (
        ") Tj {} Ts /F1 7 Tf ({}) Tj 0 Ts /F1 12 Tf (".format,
        ") Tj -2 Ts /F1 7 Tf ({}) Tj 0 Ts /F1 12 Tf (".format,
    )
    small = ") Tj /F1 7 Tf (12) Tj /F1 12 Tf ("
    line = f"about 10{raised(5, 6)} cells of 10{raised(4, -2)} m{raised(5, 2)}, H{lowered(2)}O, 1-2, 1702 and a{small}."
    (folder / "a.pdf").write_bytes(pdf(line))
    (passage,) = build(folder, tmp_path / "corpus")
    assert passage["text"] == "about 10^6 cells of 10^-2 m^2, H2O, 1-2, 1702 and a12."


def test_digits_may_be_raised_by_a_little_and_beside_letters_of_mathematics(folder, tmp_path):
    """WeasyPrint raises digits at 0.89 of the size; TeX and Typst write `x` as a character beyond 16 bits."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("x is 10) Tj 5 Ts /F1 10.7 Tf (6) Tj 0 Ts /F1 12 Tf ( litres.")))
    unicode = pypdf.generic.StreamObject()
    unicode.set_data(
        b"begincmap 1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfchar <78> <d835dc65> endbfchar"
    )
    fonts = writer.pages[0]["/Resources"]["/Font"]
    fonts["/F1"][pypdf.generic.NameObject("/ToUnicode")] = writer._add_object(unicode)
    writer.write(folder / "a.pdf")
    (passage,) = build(folder, tmp_path / "corpus")
    assert passage["text"] == "x is 10^6 litres."


def test_one_of_several_headings_of_the_first_level_is_no_title_of_a_text(folder, tmp_path):
    (folder / "mill.md").write_text("# Wheel\n\nIt turns.\n\n# Gate\n\nIt opens.\n")
    titles = [passage["title"] for passage in build(folder, tmp_path / "corpus")]
    assert titles == ["mill > Wheel", "mill > Gate"]


@pytest.mark.parametrize(
    "matter",
    [
        "--- \ntitle: Rivers\n---\t\n",
        "---\ntitle: Rivers\n...\n",
        "+++\ntitle = 'Rivers'\ndate = 2024-01-01\n+++\n",
        "\ufeff---\r\ntitle: Rivers\r\n---\r\n",
    ],
)
def test_front_matter_of_other_generators_is_known(folder, tmp_path, matter):
    (folder / "a.md").write_bytes(f"{matter}The Osk is a river.\n".encode())
    (passage,) = build(folder, tmp_path / "corpus")
    assert (passage["title"], passage["text"]) == ("Rivers", "The Osk is a river.")


@pytest.mark.parametrize("between", ["\nThe Osk is a river.\n\n", "The Osk is a river.\n", "\nNote: it is long.\n\n"])
def test_what_stands_between_two_rules_is_text(folder, tmp_path, between):
    (folder / "a.md").write_text(f"---\n{between}---\n\nVarn is a village.\n")
    text = " ".join(passage["text"] for passage in build(folder, tmp_path / "corpus"))
    assert between.strip() in text and "Varn is a village." in text


def test_front_matter_gives_the_title_and_is_no_text(folder, tmp_path):
    (folder / "a.md").write_text("---\ntitle: Rivers\ntags: [a]\n---\nThe Osk is a river.\n")
    assert [(p["title"], p["text"]) for p in build(folder, tmp_path / "corpus")] == [("Rivers", "The Osk is a river.")]


def test_hidden_files_are_left_out(folder, tmp_path):
    (folder / ".git").mkdir()
    (folder / ".git" / "a.md").write_text("hidden")
    (folder / "b.md").write_text("shown")
    assert [passage["id"] for passage in build(folder, tmp_path / "corpus")] == ["b.md#1"]


def test_an_output_folder_among_the_documents_is_refused(folder):
    (folder / "a.md").write_text("text")
    with pytest.raises(UserError, match="is inside"):
        build(folder, folder / "corpus")


def test_ids_do_not_depend_on_other_files_or_on_the_place_of_the_folder(folder, tmp_path):
    (folder / "b.md").write_text("text")
    before = build(folder, tmp_path / "one")
    (folder / "a.md").write_text("more")
    folder.rename(tmp_path / "moved")
    after = build(tmp_path / "moved", tmp_path / "two")
    assert before == after[1:]


def test_a_second_run_finds_the_corpus_finished_until_a_file_changes(folder, tmp_path, capsys):
    (folder / "a.md").write_text("text")
    build(folder, tmp_path / "corpus")
    build(folder, tmp_path / "corpus")
    assert "already a corpus" in capsys.readouterr().out
    (folder / "a.md").write_text("other")
    assert build(folder, tmp_path / "corpus")[0]["text"] == "other"
    manifest = json.loads((tmp_path / "corpus" / "manifest.json").read_text())
    assert (manifest["schema"], manifest["documents"], manifest["passages"]) == ("notewriter/corpus/1", 1, 1)


def test_a_folder_that_is_no_corpus_is_not_replaced(folder, tmp_path):
    (folder / "a.md").write_text("text")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(UserError, match="is not a corpus"):
        build(folder, tmp_path / "mine")


def test_a_file_that_keeps_its_parser_busy_is_left_behind(folder, tmp_path, monkeypatch):
    (folder / "a.pdf").write_bytes(b"%PDF")
    (folder / "b.txt").write_text("text")
    monkeypatch.setitem(extraction.EXTRACTORS, ".pdf", parsers.never_ends)
    monkeypatch.setattr(reading, "MAX_SECONDS", 4)
    assert [passage["title"] for passage in build(folder, tmp_path / "corpus")] == ["b"]
    assert "takes more than 4 seconds; split it" in read_skipped(tmp_path / "corpus")["a.pdf"]


def test_a_file_that_makes_its_parser_crash_is_left_behind(folder, tmp_path, monkeypatch):
    (folder / "a.pdf").write_bytes(b"%PDF")
    (folder / "b.txt").write_text("text")
    monkeypatch.setitem(extraction.EXTRACTORS, ".pdf", parsers.crashes)
    assert [passage["title"] for passage in build(folder, tmp_path / "corpus")] == ["b"]
    assert read_skipped(tmp_path / "corpus")["a.pdf"] == "its parser has crashed (SIGKILL); convert it to text"


def test_a_relative_path_is_that_of_the_working_directory_wherever_parsing_began(folder, tmp_path, monkeypatch):
    (folder / "b.txt").write_text("text")
    build(folder, tmp_path / "first")
    monkeypatch.chdir(tmp_path)
    assert [passage["title"] for passage in build(folder.relative_to(tmp_path), tmp_path / "corpus")] == ["b"]


def test_a_document_that_keeps_the_splitter_busy_is_left_behind(folder, tmp_path, monkeypatch):
    def count(text):
        while "busy" in text:
            time.sleep(0.01)
        return len(text.split())

    (folder / "a.txt").write_text("busy")
    (folder / "b.txt").write_text("text")
    monkeypatch.setattr(splitting, "count_words", count)
    monkeypatch.setattr(reading, "MAX_SECONDS", 0.2)
    assert [passage["title"] for passage in build(folder, tmp_path / "corpus")] == ["b"]
    assert read_skipped(tmp_path / "corpus")["a.txt"].startswith("takes more than 0.2 seconds")


def test_whatever_a_parser_raises_is_a_reason(folder, tmp_path, monkeypatch):
    (folder / "a.md").write_text("text")
    (folder / "b.txt").write_text("text")

    monkeypatch.setitem(extraction.EXTRACTORS, ".md", parsers.recurses)
    build(folder, tmp_path / "corpus")
    assert "nested too deeply" in read_skipped(tmp_path / "corpus")["a.md"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<p " + " ".join(f"a{number}=1" for number in range(10_001)) + ">text</p>", "more than 10,000 attributes"),
        ("<div>" * 300 + "text" + "</div>" * 300 + "<p>What comes after is lost.</p>", "nested too deeply"),
    ],
    ids=["attributes", "depth"],
)
def test_html_beyond_the_parsers_bounds_is_skipped_the_same_each_time(folder, tmp_path, body, reason):
    (folder / "a.html").write_text(f"<html><body>{body}</body></html>")
    (folder / "b.html").write_text(PAGE)
    for output in (tmp_path / "one", tmp_path / "two"):
        assert {passage["origin"]["file"] for passage in build(folder, output)} == {"b.html"}
        assert reason in read_skipped(output)["a.html"]


def test_many_words_in_a_script_or_in_a_quoted_value_are_no_attributes(folder, tmp_path):
    words = "word " * 11_000
    (folder / "a.html").write_text(PAGE.replace("<nav>", f"<script>if (a <b) {{ x = '{words}' }}</script><nav>"))
    (folder / "b.html").write_text(PAGE.replace("<article>", f'<article data-words="{words}">'))
    assert {passage["origin"]["file"] for passage in build(folder, tmp_path / "corpus")} == {"a.html", "b.html"}


@pytest.mark.parametrize(
    "value", ["!!int ''", "!!bool maybe", "!!timestamp soon", "2024-13-45", "!!float x", "[" * 9999]
)
def test_front_matter_that_cannot_be_read_is_text(folder, tmp_path, value):
    (folder / "a.md").write_text(f"---\ntitle: {value}\n---\nThe Osk is a river.\n")
    (passage,) = build(folder, tmp_path / "corpus", "--size", "100000")
    assert "title: " in passage["text"]
    assert passage["text"].endswith("The Osk is a river.")


def test_a_title_that_is_no_text_is_none(folder, tmp_path):
    (folder / "a.md").write_text("---\na0: &a0 [x, x]\ntitle: *a0\n---\nThe Osk is a river.\n")
    assert [(p["title"], p["text"]) for p in build(folder, tmp_path / "corpus")] == [("a", "The Osk is a river.")]


def test_front_matter_whose_aliases_stand_for_too_much_is_text(folder, tmp_path):
    aliases = "".join(f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]\n" for level in range(1, 60))
    (folder / "a.md").write_text(f"---\na0: &a0 [x, x]\n{aliases}title: *a59\n---\nThe Osk is a river.\n")
    assert build(folder, tmp_path / "corpus", "--size", "1000")[-1]["text"].endswith("The Osk is a river.")


def test_what_links_lead_to_in_a_store_is_read_once(folder, tmp_path):
    """As git-annex and DVC keep files: below a hidden folder, or without an ending."""
    for place in (".store/osk.md", "blobs/5e1f"):
        (folder / place).parent.mkdir()
        (folder / place).write_text(f"The Osk is a river of {place}.")
    for name, target in (("a.md", ".store/osk.md"), ("b.md", ".store/osk.md"), ("c.md", "blobs/5e1f")):
        os.symlink(target, folder / name)
    texts = [passage["text"] for passage in build(folder, tmp_path / "corpus")]
    assert [text for text in texts if " of " in text] == [
        "The Osk is a river of .store/osk.md.",
        "The Osk is a river of blobs/5e1f.",
    ]
    assert "read under another name" in read_skipped(tmp_path / "corpus")["b.md"]


def with_flipped_part(content):
    """A Word file, the first compressed byte of whose text says that there is no such block."""
    changed = bytearray(content)
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        part = parts.getinfo("word/document.xml")
    lengths = struct.unpack_from("<HH", content, part.header_offset + 26)
    changed[part.header_offset + 30 + sum(lengths)] = 0xFF
    return bytes(changed)


def test_a_pdf_whose_title_is_half_a_character_is_called_by_its_file(folder, tmp_path):
    half = pdf("Varn is a village.", title="Old Varn").replace(b"(Old Varn)", b"<FEFFD83D>")
    (folder / "half.pdf").write_bytes(half)
    (passage,) = build(folder, tmp_path / "corpus")
    assert (passage["title"], passage["text"]) == ("half", "Varn is a village.")
