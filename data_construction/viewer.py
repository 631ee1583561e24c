"""`notewriter inspect`: one HTML page to leaf through pairs and chains, with the difference of the two sides marked."""

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from notewriter.config import parse
from notewriter.errors import UserError
from notewriter.pages import packed, write_page

logger = logging.getLogger(__name__)

CHUNK = 100
"""Items whose long texts are compressed together; prompts of neighbours share most of their passages."""

LONG = ("prompt", "judge_replies", "messages")
"""Columns that are put on the page when an item is opened."""

PAIR_COLUMNS = ("prompt", "chosen", "rejected", "stage", "question_id")
CHAIN_COLUMNS = ("messages", "question_id")


@dataclass
class Arguments:
    """What to leaf through."""

    pairs: str | None = field(default=None, metadata={"help": "a folder that `notewriter pairs` wrote"})
    chains: str | None = field(default=None, metadata={"help": "a folder of chains, whose rows are `messages`"})
    output: str = field(
        default="pairs.html", metadata={"help": "the HTML file to write; it needs no other file and no network"}
    )


def main(argv: list[str]) -> None:
    """The `inspect` command."""
    (arguments,) = parse(Arguments, argv, prog="notewriter inspect", description=__doc__)
    output = Path(arguments.output)
    write_viewer(output, arguments.pairs and Path(arguments.pairs), arguments.chains and Path(arguments.chains))
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def write_viewer(output: Path, pairs: Path | None = None, chains: Path | None = None) -> None:
    """Write one self-contained HTML page about a folder of pairs, one of chains, or both.

    What the list, the filter and the search need is embedded as one compressed block, prompts and judges' replies
    in blocks of `CHUNK` items that the page unpacks when one of them is opened.

    Raises:
        UserError: neither folder is given, a folder has no train.parquet, a file is no Parquet or lacks columns,
            or an output that cannot be written.
    """
    if not (pairs or chains):
        raise UserError("nothing to inspect: give --pairs FOLDER, --chains FOLDER, or both")
    index: list[dict[str, Any]] = []
    blocks: dict[str, str] = {}
    rows = itertools.chain(_rows(pairs, PAIR_COLUMNS) if pairs else (), _rows(chains, CHAIN_COLUMNS) if chains else ())
    while chunk := list(itertools.islice(rows, CHUNK)):
        blocks[f"block-{len(blocks)}"] = packed([long for _, long in chunk])
        index += [short for short, _ in chunk]
    write_page(
        output,
        Path(__file__).with_name("viewer.html.jinja"),
        {"index": packed(index), **blocks},
        title=" and ".join(str(folder) for folder in (pairs, chains) if folder),
        chunk=CHUNK,
        stages=list(Counter(item["stage"] for item in index).items()),
    )


def _rows(folder: Path, columns: Iterable[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row of a folder's splits as what the list needs and the long columns, one batch in memory at a time."""
    if not (folder / "train.parquet").is_file():
        raise UserError(f"{folder}: holds no train.parquet; give the folder that pairs or chains were written to")
    for path in (folder / "train.parquet", folder / "dev.parquet"):
        if not path.is_file():
            continue
        try:
            file = pyarrow.parquet.ParquetFile(path)
        except (OSError, pyarrow.ArrowException) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: is not a readable Parquet file ({reason}); write it again") from error
        with file:
            if missing := [column for column in columns if column not in file.schema_arrow.names]:
                raise UserError(f"{path}: lacks the column(s) {', '.join(missing)}; give a folder of the right kind")
            for batch in file.iter_batches(CHUNK):
                for row in batch.to_pylist():
                    short = {"split": path.stem, "stage": "chain", **row}
                    yield (
                        {key: short[key] for key in short if key not in LONG},
                        {key: row[key] for key in LONG if key in row},
                    )
