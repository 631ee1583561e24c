"""Dumps of Wikipedia as `wikimedia/wikipedia` has them on the Hugging Face Hub: Parquet of id, url, title, text.

The text is plain: headings are lines like any other, tables and infoboxes are gone (`wikipedia_html` has them).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Origin, Record, Source
from notewriter.datasets.reading import get
from notewriter.ground.lazy import Lazy
from notewriter.ground.releases import File, Release

if TYPE_CHECKING:
    from notewriter.artifacts import parquet
else:
    # All sources are imported where they are listed.
    parquet = Lazy("notewriter.artifacts.parquet")

COLUMNS = ["id", "url", "title", "text"]
BATCH = 256
"""Pages read at a time."""


def _rows(name: str, path: Path) -> Iterator[Record]:
    for number, row in enumerate(parquet.read_rows(path, COLUMNS, BATCH, COLUMNS)):
        yield f"{name}: row {number}", row


def _parse(place: str, row: dict[str, Any]) -> list[Document]:
    title, text, url = (get(row, key, str, place) for key in ("title", "text", "url"))
    return [Document(reading.identifier(row, "id", place), title, text, Origin(url=url))]


_ENGLISH = "hf://datasets/wikimedia/wikipedia@b04c8d1ceb2f5cd4588862100d08de323dccfbaa/20231101.en"

SOURCE = Source(
    title="a dump of Wikipedia",
    files=Release(
        name="wikipedia",
        page="huggingface.co/datasets/wikimedia/wikipedia",
        licence="cc-by-sa-3.0, gfdl",
        files=tuple(
            File(
                address=f"{_ENGLISH}/train-{number:05}-of-00041.parquet", name=f"20231101.en/train-{number:05}.parquet"
            )
            for number in range(41)
        ),
    ),
    inputs=lambda paths: reading.expand(paths, "*.parquet"),
    records=_rows,
    parse=_parse,
    split="words",
)
