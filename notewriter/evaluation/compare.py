"""`notewriter compare`: runs, or groups of seeds, side by side on the questions they share.

Beside them stand notes that no model wrote (`controls`).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.comparing import (
    Comparison,
    against_controls,
    compare_uncorrected,
    corrected,
    p_value_text,
)
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.pages.tables import aligned
from notewriter.rollouts.controls import CONTROLS


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


def format_table(comparison: Comparison, controls: Mapping[str, Comparison] | None = None) -> str:
    """A comparison as an aligned Markdown table; `*` marks a difference whose interval excludes zero.

    `controls` are those of `against_controls`, each a table of its own.
    """
    controls = controls or {}
    tables = [_table(comparison, "before")]
    for name, against in controls.items():
        sentence = CONTROLS[name].sentence
        tables += [f"Without a model ({name}): {sentence}, at the same number of words:\n", _table(against, name)]
    all_paired = [paired for each in (comparison, *controls.values()) for paired in each.values()]
    explanation = (
        "An asterisk marks a paired difference whose interval excludes zero. p: McNemar's exact test where scores "
        "are 0 or 1, else a permutation test, corrected for the number of scores (Holm)"
        + (", of notes without a model apart." if controls else ".")
    )
    if any(deviation is not None for paired in all_paired for deviation in paired.deviations):
        explanation += (
            "\n± is the standard deviation over seeds; intervals and p are over the questions, not over trainings."
        )
    return "\n".join([*tables, explanation])


def _table(comparison: Comparison, before: str) -> str:
    """The rows of a comparison; `before` heads the left side."""
    rows = []
    for metric, paired in comparison.items():
        places = metric_named(metric).decimals
        means = [
            f"{mean:,.{places}f}" + ("" if deviation is None else f" ± {deviation:,.{places}f}")
            for mean, deviation in zip((paired.before, paired.after), paired.deviations, strict=True)
        ]
        difference = paired.difference.text(places, "+") + (" *" if paired.difference.excludes_zero else "  ")
        p_value = p_value_text(metric, paired.p_value, paired.at_floor)
        rows.append([metric, *means, difference, p_value, str(paired.questions)])
    return aligned([("", ["metric", before, "after", "difference [95% interval]", "p", "questions"], rows)])


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
