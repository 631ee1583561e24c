"""`notewriter compare`: runs side by side on the questions they share, and beside notes that no model wrote."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.evaluation.comparison import against_controls, compare_uncorrected, corrected, format_table
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError


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
    after = list(map(Path, arguments.after))
    comparison = compare_uncorrected(list(map(Path, arguments.before)), after)
    controls, reason = {}, ""
    try:
        controls = against_controls(after)
    except UserError as error:
        reason = f"Without a model: not shown. {error}\n"
    # Apart, so that the comparison's p-values are the same where the passages are no longer at hand.
    (comparison,) = corrected([comparison])
    controls = dict(zip(controls, corrected([*controls.values()]), strict=True))
    sys.stdout.write(format_table(comparison, controls) + "\n" + reason)
