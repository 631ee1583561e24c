"""One self-contained HTML page to browse pairs and chains."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from notewriter.artifacts.chains import read_chains
from notewriter.artifacts.pairs import read_pairs
from notewriter.data.dataset.splits import SPLITS
from notewriter.ground.errors import UserError
from notewriter.pages import packed, write_page

CHUNK = 100
"""Items whose long texts are compressed together; the prompts of neighbours share most of their passages."""

LONG = ("prompt", "judge_replies", "messages")
"""Columns that are unpacked only when an item is opened."""


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
    if not (folder / "train.parquet").is_file():
        raise UserError(f"{folder}: has no train.parquet; give the folder that pairs or chains were written to")
    for path in (folder / f"{split}.parquet" for split in SPLITS):
        if not path.is_file():
            continue
        for row in read(path, CHUNK):
            short = {"split": path.stem, "stage": "chain", **row}
            yield (
                {key: short[key] for key in short if key not in LONG},
                {key: row[key] for key in LONG if key in row},
            )
