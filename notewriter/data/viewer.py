"""`notewriter inspect`: one HTML page to read pairs and chains, with the differences between the two sides marked."""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from notewriter.artifacts.chains import read_chains
from notewriter.artifacts.pairs import SIDES, read_pairs
from notewriter.data.dataset.splits import split_files
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.pages import write_page
from notewriter.pages.differences import UNCOMPARED, TooAlike, marked_differences

logger = logging.getLogger(__name__)

TEXTS = {"prompt", "chosen", "rejected", "messages", "judge_replies", "judge_orders", "schema", "stage", "question_id"}
"""Columns that have a place of their own on the page; the others are listed by name."""


@dataclass
class InspectArguments:
    """The options of `notewriter inspect`: the data, and the page's file."""

    pairs: str | None = option(None, "a folder written by `notewriter pairs`")
    chains: str | None = option(None, "a folder of chains, whose rows have `messages`")
    output: str = option("pairs.html", "the HTML file to write; self-contained, works offline")
    most: Annotated[int, Interval(ge=1)] = option(
        100, "number of rows to show of each stage and split, from the first on"
    )


def main(argv: list[str]) -> None:
    """Write the page."""
    (arguments,) = parse(InspectArguments, argv, prog="notewriter inspect", description=__doc__)
    output = Path(arguments.output)
    pairs, chains = (Path(name) if name else None for name in (arguments.pairs, arguments.chains))
    write_viewer(output, pairs, chains, arguments.most)
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def write_viewer(output: Path, pairs: Path | None = None, chains: Path | None = None, most: int = 100) -> None:
    """Write one HTML page about a folder of pairs, one of chains, or both: `most` rows of each stage and split.

    Raises:
        UserError: neither folder is given, a folder has no train.parquet, a file does not contain pairs or chains, or
            the output cannot be written.
    """
    if not (pairs or chains):
        raise UserError("nothing to inspect: give --pairs FOLDER, --chains FOLDER, or both")
    counts: Counter[tuple[str, str]] = Counter()
    stages: dict[str, list[dict[str, Any]]] = {}
    of_pairs, of_chains = _rows(pairs, read_pairs) if pairs else (), _rows(chains, read_chains) if chains else ()
    for split, row in itertools.chain(of_pairs, of_chains):
        stage = row.get("stage") or "chain"
        counts[stage, split] += 1
        if counts[stage, split] <= most:
            stages.setdefault(stage, []).append(_shown(split, row))
    write_page(
        output,
        Path(__file__).with_name("viewer.html.jinja"),
        {},
        title=" and ".join(str(folder) for folder in (pairs, chains) if folder),
        stages=stages,
        totals={stage: sum(counts[each] for each in counts if each[0] == stage) for stage in stages},
    )


def _rows(folder: Path, read: Callable[[Path], Iterator[Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path in split_files(folder):
        for row in read(path):
            yield path.stem, row


def _shown(split: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The shown part of a row."""
    facts = {"split": split} | {key: value for key, value in row.items() if key not in TEXTS}
    sides: dict[str, Any] = {}
    if "chosen" in row:
        texts = [row[side][-1]["content"] for side in SIDES]
        try:
            both = marked_differences(*texts)
        except TooAlike:
            facts["differences"] = UNCOMPARED
            both = [(texts[0], False)], [(texts[1], False)]
        for side, marked in zip(SIDES, both, strict=True):
            own = {key: facts.pop(key) for key in list(facts) if key.startswith(side)}
            sides[side] = {"words": marked, "facts": _told({key[len(side) + 1 :]: own[key] for key in own})}
    return {
        "question_id": row["question_id"],
        "facts": _told(facts),
        "sides": sides,
        "messages": row.get("prompt") or row.get("messages"),
        "judge_replies": row.get("judge_replies") or [],
    }


def _told(values: Mapping[str, Any]) -> dict[str, str]:
    """Columns by name, without those that are null; a source is its kind and how it was drawn."""
    told = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            parts = [part if name == "kind" else f"{name} {part}" for name, part in value.items() if part is not None]
            told[key] = ", ".join(parts).replace("_", " ")
        elif value is not None:
            told[key] = f"{value:.4g}" if isinstance(value, float) else str(value)
    return told
