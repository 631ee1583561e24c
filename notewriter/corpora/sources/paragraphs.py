"""One corpus of the paragraphs of several benchmarks and of files of passages, in which a search can fail.

A file is HotpotQA's or 2WikiMultihopQA's (a JSON list with `context`), MuSiQue's (JSON Lines with `paragraphs`), or
JSON Lines of passages with `title` and `text`. Ids are those that the questions' `supporting_ids` refer to, whichever
other files there are: of a passage a digest, by which the same title and text come once, or BEIR's `_id`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Record, Source
from notewriter.corpora.sources.ircot import paragraphs
from notewriter.datasets import hotpotqa, musique
from notewriter.datasets.reading import get, identifier, passage_id, records


def _records(name: str, path: Path) -> Iterator[Record]:
    return records(path)


def _parse(place: str, record: dict[str, Any]) -> list[Document]:
    if "context" in record:
        return paragraphs(place, hotpotqa.passages(record, place))
    if "paragraphs" in record:
        return paragraphs(place, musique.passages(record, place))
    title, text = get(record, "title", str, place), get(record, "text", str, place).strip()
    id = identifier(record, "_id", place) if "_id" in record else passage_id(title, text)
    return [Document(id, title, text)]


SOURCE = Source(
    title="the paragraphs of several benchmarks",
    files="files of HotpotQA, 2WikiMultihopQA and MuSiQue, and JSON Lines of passages with title and text",
    inputs=lambda paths: reading.expand(paths, "*.json", "*.jsonl", "*.parquet", "*.json.gz", "*.jsonl.gz"),
    records=_records,
    parse=_parse,
    has_repeats=True,
)
