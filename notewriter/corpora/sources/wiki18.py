"""The JSON Lines of FlashRAG and Search-R1: `id` and `contents`, whose first line is the title.

Their wiki-18 is DPR's Wikipedia of December 2018 with the title in quotation marks. Other corpora of FlashRAG have
`title` and `text` beside `contents`.
"""

from collections.abc import Iterator
from pathlib import Path

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Record, Source
from notewriter.datasets.reading import get
from notewriter.ground.releases import File, Release
from notewriter.ground.text import unquoted


def _records(name: str, path: Path) -> Iterator[Record]:
    """The lines of a file.

    Search-R1's wiki-18.jsonl.gz is a tar archive that gzip takes for one file: what is before the first line and after
    the last one of its member is left out.
    """
    for place, line in reading.lines(name, path):
        if json_line := line.rpartition("\0")[2].strip():
            yield place, json_line


def _parse(place: str, line: str) -> list[Document]:
    record = reading.json_object(place, line)
    id = reading.identifier(record, "id", place)
    if "contents" not in record and "text" in record:
        return [Document(id, get(record, "title", str, place), get(record, "text", str, place))]
    title, _, text = get(record, "contents", str, place).partition("\n")
    return [Document(id, unquoted(title), text.strip())]


SOURCE = Source(
    title="wiki-18 of FlashRAG and Search-R1",
    files=Release(
        name="wiki-18",
        page="huggingface.co/datasets/PeterJinGo/wiki-18-corpus",
        licence="none stated; Wikipedia's text is CC BY-SA",
        files=(
            # The file is a tar archive, whatever its ending says.
            File(
                address="hf://datasets/PeterJinGo/wiki-18-corpus@69c1c00ffe7c5554c68d8548355cb22e46aabc51/"
                "wiki-18.jsonl.gz",
                name="wiki-18.jsonl",
                member="wiki_dump.jsonl",
                size=5_123_307_260,
                sha256="7abd929223399cd63c52b499f289bf4f9039be1e9f8c43e1cb3938305b2317db",
            ),
        ),
    ),
    inputs=lambda paths: reading.expand(paths, "*.jsonl*"),
    records=_records,
    parse=_parse,
)
