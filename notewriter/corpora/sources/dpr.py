"""DPR's `psgs_w100.tsv`: English Wikipedia of December 2018 in passages of a hundred words, with their own ids.

Karpukhin et al. 2020, section 4.1. It is also the corpus of ALCE, which DeepNote searches for ASQA and StrategyQA.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Record, Source
from notewriter.ground.errors import UserError
from notewriter.ground.releases import File, Release
from notewriter.ground.text import without_surrogates

HEADER = ["id", "text", "title"]


def _rows(name: str, path: Path) -> Iterator[Record]:
    csv.field_size_limit(sys.maxsize)
    rows = csv.reader((line for _, line in reading.lines(name, path)), delimiter="\t")
    try:
        for row in rows:
            if row != HEADER:
                yield f"{name}:{rows.line_num}", row
    except csv.Error as error:
        raise UserError(f"{name}:{rows.line_num}: is not tab-separated ({error}); use psgs_w100.tsv") from error


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
