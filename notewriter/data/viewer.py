"""`notewriter inspect`: one HTML page to browse pairs and chains, with the two sides of a pair as a diff."""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter.artifacts.chains import read_chains
from notewriter.artifacts.pairs import read_pairs
from notewriter.data.dataset.splits import split_files
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.pages import packed, write_page

logger = logging.getLogger(__name__)

CHUNK = 100
"""Items whose long texts are compressed together; the prompts of neighbours share most of their passages."""

LONG = ("prompt", "judge_replies", "messages")
"""Columns that are unpacked only when an item is opened."""


@dataclass
class InspectArguments:
    """What to show, and where to write the page."""

    pairs: str | None = field(default=None, metadata={"help": "a folder written by `notewriter pairs`"})
    chains: str | None = field(default=None, metadata={"help": "a folder of chains, whose rows have `messages`"})
    output: str = field(
        default="pairs.html", metadata={"help": "the HTML file to write; self-contained, works offline"}
    )


def main(argv: list[str]) -> None:
    """Write the page."""
    (arguments,) = parse(InspectArguments, argv, prog="notewriter inspect", description=__doc__)
    output = Path(arguments.output)
    write_viewer(output, *(Path(name) if name else None for name in (arguments.pairs, arguments.chains)))
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def write_viewer(output: Path, pairs: Path | None = None, chains: Path | None = None) -> None:
    """Write one HTML page about a folder of pairs, one of chains, or both.

    What the list, the filter and the search need is embedded as one compressed block; prompts and judges' replies
    are embedded in blocks of `CHUNK` items, which the page unpacks when one of them is opened.

    Raises:
        UserError: neither folder is given, a folder has no train.parquet, a file does not contain pairs or chains, or
            the output cannot be written.
    """
    if not (pairs or chains):
        raise UserError("nothing to inspect: give --pairs FOLDER, --chains FOLDER, or both")
    index: list[dict[str, Any]] = []
    blocks: dict[str, str] = {}
    items = itertools.chain(_items(pairs, read_pairs) if pairs else (), _items(chains, read_chains) if chains else ())
    while chunk := list(itertools.islice(items, CHUNK)):
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


def _items(
    folder: Path, read: Callable[[Path, int], Iterator[Mapping[str, Any]]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row of a folder's splits, as the columns that the list needs and the long ones."""
    for path in split_files(folder):
        for row in read(path, CHUNK):
            short = {"split": path.stem, "stage": "chain", **row}
            yield (
                {key: short[key] for key in short if key not in LONG},
                {key: row[key] for key in LONG if key in row},
            )
