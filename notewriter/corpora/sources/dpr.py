"""DPR's `psgs_w100.tsv`: English Wikipedia of December 2018 in passages of a hundred words, with their own ids.

Karpukhin et al. 2020, section 4.1. It is also the corpus of ALCE, which DeepNote searches for ASQA and StrategyQA.
"""

from collections.abc import Iterator
from pathlib import Path

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Record, Source
from notewriter.datasets.reading import cells
from notewriter.ground.errors import UserError
from notewriter.ground.releases import File, Release
from notewriter.ground.text import without_surrogates

HEADER = ["id", "text", "title"]


def _rows(name: str, path: Path) -> Iterator[Record]:
    for place, row in cells(reading.lines(name, path), "\t"):
        if row != HEADER:
            yield place, row


def _parse(place: str, row: list[str]) -> list[Document]:
    if len(row) != 3:
        raise UserError(f"{place}: has {len(row)} columns, not id, text, title")
    if any(without_surrogates(cell) != cell for cell in row):
        raise UserError(f"{place}: is not UTF-8")
    id, text, title = row
    return [Document(id, title, text)]


SOURCE = Source(
    title="DPR's Wikipedia of December 2018",
    files=Release(
        name="dpr",
        page="github.com/facebookresearch/DPR (data.wikipedia_split.psgs_w100)",
        licence="Wikipedia's text, CC BY-SA",
        files=(
            File(
                address="https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz",
                about=4_700_000_000,
                unverified="size and SHA-256",
            ),
        ),
    ),
    inputs=lambda paths: reading.expand(paths, "*.tsv*"),
    records=_rows,
    parse=_parse,
)
