"""`notewriter compare`: runs side by side on the questions they share."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from eval.comparison import compare, format_table
from notewriter.config import parse


@dataclass
class CompareArguments:
    """Which runs are compared."""

    before: Annotated[list[str], MinLen(1)] = field(
        metadata={
            "help": "the run to compare with, for example before training: a folder that `evaluate` wrote. Several "
            "folders are one configuration under several seeds: their scores are averaged per question"
        }
    )
    after: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "the other run or runs; differences are after minus before"}
    )


def main(argv: list[str]) -> None:
    """Print the comparison as a table."""
    (arguments,) = parse(
        CompareArguments,
        argv,
        prog="notewriter compare",
        description="Compare runs question by question: means, and the difference with its 95% interval and p-value.",
    )
    comparison = compare(list(map(Path, arguments.before)), list(map(Path, arguments.after)))
    sys.stdout.write(format_table(comparison) + "\n")
