"""Pages of Wikipedia in HTML become Markdown in which the numbers of tables and infoboxes stand with their names."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from corpus_files import read_corpus, read_skipped

from notewriter.corpora import corpus, webpage
from notewriter.ground.errors import UserError


def markdown(name, html):
    return webpage.read(name, html).text


PAGE = """<!DOCTYPE html>
<html><head><title>Tolen</title></head><body class="mw-content-ltr parsoid-body">
<section><div role="note" class="hatnote navigation-not-searchable">For the river, see <a href="./Osk">Osk</a>.</div>
<div class="shortdescription noexcerpt" style="display:none">Town in Varn</div><style>.x{color:red}</style>
<table class="infobox ib-settlement"><tbody>
<tr><th colspan="2" class="infobox-above"><div>Tolen</div></th></tr>
<tr><td colspan="2" class="infobox-image"><img src="x.jpg"/><div class="infobox-caption">The market</div></td></tr>
<tr><th scope="row">Country</th><td><a href="./Varn">Varn</a></td></tr>
<tr><th scope="row">Population<div>(2021)</div></th><td>12,345<sup class="mw-ref reference">[1]</sup></td></tr>
<tr><th scope="row">Rivers</th><td><div class="plainlist"><ul><li>River Osk</li><li>Fulda</li></ul></div></td></tr>
</tbody></table>
<p><b>Tolen</b> is a town in <a href="./Varn">Varn</a>.<sup class="mw-ref reference">[1]</sup>
It lies on the <i>Osk</i>.</p></section>
<section><h2>Mayors<span class="mw-editsection">[edit]</span></h2><p>Since 1990:</p>
<table class="wikitable"><caption>Mayors of Tolen</caption><tbody>
<tr><th>Name</th><th>Term</th><th>Party</th></tr>
<tr><td rowspan="2">Ana Kesk</td><td>1990-1995</td><td>Red | Blue</td></tr>
<tr><td>1995-1999</td><td>Red</td></tr>
<tr><td>Bo Brel</td><td colspan="2">since 1999</td></tr></tbody></table>
<ul><li>A bridge</li><li>Two museums:<ol><li>of clocks</li><li>of trams</li></ol></li></ul></section>
<section><div class="reflist"><ol class="references"><li>Census.</li></ol></div></section>
<div class="navbox"><table><tr><td>Towns of Varn</td></tr></table></div>
</body></html>"""

MARKDOWN = """| Tolen |  |
| --- | --- |
| The market |  |
| Country | Varn |
| Population (2021) | 12,345 |
| Rivers | River Osk; Fulda |

Tolen is a town in Varn. It lies on the Osk.

## Mayors

Since 1990:

Mayors of Tolen

| Name | Term | Party |
| --- | --- | --- |
| Ana Kesk | 1990-1995 | Red \\| Blue |
| Ana Kesk | 1995-1999 | Red |
| Bo Brel | since 1999 |  |

- A bridge
- Two museums:
  1. of clocks
  2. of trams"""

DUMPED = {
    "identifier": 7,
    "name": "Tolen",
    "url": "https://en.wikipedia.org/wiki/Tolen",
    "article_body": {"html": PAGE, "wikitext": "'''Tolen'''"},
}
ANSWERED = {"id": 7, "key": "Tolen", "title": "Tolen", "latest": {"id": 1}, "html": PAGE}


def dump(path: Path, *records: object) -> Path:
    """An archive as the dumps are: pages, one a line, in several files."""
    with tarfile.open(path, "w:gz") as archive:
        for number, record in enumerate(records):
            content = (json.dumps(record) + "\n").encode()
            member = tarfile.TarInfo(f"enwiki_{number}.ndjson")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def build(path: Path, *options: str) -> list[dict]:
    output = path.parent / "out"
    corpus.main(["--source", "wikipedia-html", "--path", str(path), "--output_dir", str(output), *options])
    return read_corpus(output)


def test_tables_and_infoboxes_stay_and_what_is_no_text_goes():
    assert markdown("page", PAGE) == MARKDOWN


def test_a_table_inside_a_cell_is_words_of_the_cell():
    inner = "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>"
    assert markdown("page", f"<table><tr><td>{inner}</td><td>d</td></tr></table>") == "| a b c | d |\n| --- | --- |"


def test_words_between_blocks_are_paragraphs():
    assert markdown("page", "one <b>two</b><div>three</div>four<br>five") == "one two\n\nthree\n\nfour five"


@pytest.mark.parametrize("tag", ["div", "b", "ul><li", "table><tr><td"])
def test_nesting_that_the_parser_cuts_off_is_an_error_and_less_is_read(tag):
    with pytest.raises(UserError, match="nested too deeply"):
        markdown("page", f"<p>one<{tag}>" + f"<{tag}>" * 5000 + "two")
    assert markdown("page", "<div>" * 200 + "two") == "two"


def test_a_tag_of_very_many_attributes_is_an_error():
    with pytest.raises(UserError, match=r"page: .*attributes"):
        markdown("page", "<p " + " ".join(f"a{number}" for number in range(20_000)) + ">one")


def test_a_page_is_the_same_out_of_a_dump_and_from_the_interface(tmp_path):
    dumped = build(dump(tmp_path / "enwiki-NS0-ENTERPRISE-HTML.json.tar.gz", DUMPED), "--split", "none")
    assert dumped == [{"id": "7", "title": "Tolen", "text": MARKDOWN, "origin": {"url": DUMPED["url"]}}]
    (tmp_path / "answered").mkdir()
    path = tmp_path / "answered" / "pages.jsonl"
    path.write_text(json.dumps(ANSWERED) + "\n")
    assert build(path, "--split", "none") == [{"id": "7", "title": "Tolen", "text": MARKDOWN}]


def test_the_first_version_of_a_page_counts(tmp_path):
    page = {"id": 7, "title": "Tolen", "html": "<p>A town.</p>"}
    path = dump(tmp_path / "a.tar.gz", page, page | {"html": "<p>A city.</p>"})
    assert [passage["text"] for passage in build(path, "--split", "none")] == ["A town."]


def test_sections_are_split_and_the_pages_of_a_question_chosen(tmp_path):
    other = DUMPED | {"identifier": 8, "name": "Fulda", "url": "https://en.wikipedia.org/wiki/Fulda"}
    path = dump(tmp_path / "a.tar.gz", other, DUMPED)
    questions = tmp_path / "frames.jsonl"
    link = "https://en.wikipedia.org/wiki/tolen#Mayors"
    questions.write_text(json.dumps({"question": "?", "answer": "a", "wikipedia_link_1": link}))
    passages = build(path, "--pages_of", str(questions), "--dataset", "frames", "--size", "60")
    assert {passage["title"] for passage in passages} == {"Tolen"}
    assert passages[-1]["origin"]["headings"] == ["Mayors"]


def test_a_page_that_cannot_be_read_is_skipped_and_named(tmp_path):
    wide = "<table>" + "<tr><td>x<td colspan=1000>x</tr>" * 1001 + "</table>"
    bad = [{"identifier": 1, "name": "Empty", "article_body": {"html": ""}}, {"id": 2, "title": "Wide", "html": wide}]
    path = dump(tmp_path / "a.tar.gz", *bad, {"identifier": 3, "name": "None"}, DUMPED)
    assert [passage["id"] for passage in build(path, "--split", "none")] == ["7"]
    skipped = read_skipped(tmp_path / "out")
    assert [name.rpartition(": ")[2] for name in skipped] == [f"enwiki_{number}.ndjson:1" for number in range(3)]
    reasons = list(skipped.values())
    assert "not HTML" in reasons[0] and "1,000,000 cells" in reasons[1] and "has no 'id'" in reasons[2]


def test_a_truncated_archive_is_an_error(tmp_path):
    path = dump(tmp_path / "a.tar.gz", *[DUMPED | {"identifier": number} for number in range(50)])
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 3])
    with pytest.raises(UserError, match=r"a\.tar\.gz: is truncated or damaged"):
        build(path)
    path.write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"a\.tar\.gz: is truncated or damaged"):
        build(path)
