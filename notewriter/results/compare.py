"""Runs, or groups of seeds, side by side on the questions they share."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.predictions import COSTS
from notewriter.evaluation.statistics import (
    FLOOR,
    TwoWay,
    holm,
    paired_interval,
    paired_p_value,
    standard_deviation,
    two_way,
)
from notewriter.ground.errors import UserError
from notewriter.results.measures import by_question
from notewriter.results.runs import Run, Runs

LEVEL = 0.05
"""The p-value, corrected, up to which a difference has an asterisk."""


@dataclass(frozen=True)
class Paired:
    """A score or cost before and after.

    Args:
        before: its mean before.
        after: its mean after.
        deviations: the standard deviation over the seeds of either side; None for a single seed.
        difference: the mean of `after - before`, paired by question, with its interval.
        p_value: of the null hypothesis that there is no difference.
        questions: how many were paired.
        at_floor: whether no permutation was as extreme, so that the p-value is an upper bound.
    """

    before: float
    after: float
    deviations: tuple[float | None, float | None]
    difference: Interval
    p_value: float
    questions: int
    at_floor: bool = False

    @property
    def is_unchanged(self) -> bool:
        """Whether both sides are equal on every question."""
        return self.difference.low == self.difference.high == 0


Comparison = dict[str, Paired]
"""Score or cost -> its values on both sides."""

ByQuestion = Mapping[str, Mapping[str, float]]
"""Question id -> measure -> value."""


def compare(before: Sequence[Run], after: Sequence[Run]) -> Comparison:
    """Compare runs on the questions they share, by the scores and costs that all of them have.

    Several runs on one side are one configuration under several seeds. Differences are `after - before`, paired by
    question, with 95% bootstrap intervals and p-values corrected for the number of scores.

    Raises:
        UserError: see `compare_uncorrected`.
    """
    (comparison,) = corrected([compare_uncorrected(before, after)])
    return comparison


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons that are read together, their p-values corrected for the number of tests in all of them (`holm`).

    Rows that are alike in every number are one test, and a score that no question changed is none.
    """
    scores = [each for comparison in comparisons for name, each in comparison.items() if name not in COSTS]
    tested = [each for each in dict.fromkeys(scores) if not each.is_unchanged]
    p_values = dict(zip(tested, holm([each.p_value for each in tested]), strict=True))
    return [
        {
            name: paired if name in COSTS else replace(paired, p_value=p_values.get(paired, 1.0))
            for name, paired in comparison.items()
        }
        for comparison in comparisons
    ]


def is_sure(name: str, paired: Paired) -> bool:
    """Whether a difference has an asterisk: its interval excludes zero, and its p, if any, is at most `LEVEL`."""
    return paired.difference.excludes_zero and (name in COSTS or paired.p_value <= LEVEL)


def compare_uncorrected(before: Sequence[Run], after: Sequence[Run]) -> Comparison:
    """`compare` with uncorrected p-values (`paired_p_value`).

    Raises:
        UserError: files that are missing or malformed, runs scored by different metric families, runs without a common
            question, or an id that stands for different questions.
    """
    runs = [*before, *after]
    check_comparable(runs)
    shared = [id for id in runs[0].predictions if all(id in run.predictions for run in runs)]
    if not shared:
        folders = " and ".join(str(run.folder) for run in runs)
        raise UserError(f"{folders} have no question in common; evaluate all on one dataset and split")

    def values(run: Run) -> ByQuestion:
        return {id: of.scores | {cost: float(of.cost(cost)) for cost in COSTS} for id, of in run.predictions.items()}

    scores = dict.fromkeys(name for id in shared for name in runs[0].predictions[id].scores)
    return compared([*map(values, before)], [*map(values, after)], (*scores, *COSTS))


def check_comparable(runs: Sequence[Run]) -> None:
    """Check that all runs have one metric family and mean one question by an id.

    Raises:
        UserError: they do not; names two of the runs.
    """
    first, *others = runs
    for run in others:
        if run.family != first.family:
            raise UserError(
                f"{first.folder} was scored by {first.family!r} and {run.folder} by {run.family!r}, whose rules "
                "differ; evaluate both with one metric family"
            )
        for id in first.predictions.keys() & run.predictions.keys():
            if first.predictions[id].question != run.predictions[id].question:
                raise UserError(
                    f"{first.folder} and {run.folder}: question {id!r} has a different text in each; "
                    "evaluate both on one question file"
                )


def compared(before: Sequence[ByQuestion], after: Sequence[ByQuestion], measures: Iterable[str]) -> Comparison:
    """Measures on two sides of runs, each on the questions for which all runs have it, unless there is none."""
    found: Comparison = {}
    for name in measures:
        shared = [id for id in before[0] if all(name in scores.get(id, {}) for scores in (*before, *after))]
        sides = ([[scores[id][name] for id in shared] for scores in side] for side in (before, after))
        if shared:
            found[name] = compare_scores(*sides)
    return found


def compare_scores(before: list[list[float]], after: list[list[float]]) -> Paired:
    """Compare one score or measure; each side has the shape (seeds, questions)."""
    sides = before, after
    left, right = ([sum(values) / len(values) for values in zip(*seeds, strict=True)] for seeds in sides)
    p_value = paired_p_value(left, right)
    return Paired(
        before=sum(left) / len(left),
        after=sum(right) / len(right),
        deviations=(_deviation(before), _deviation(after)),
        difference=paired_interval(left, right),
        p_value=p_value,
        questions=len(left),
        at_floor=p_value == FLOOR,
    )


def _deviation(seeds: list[list[float]]) -> float | None:
    return standard_deviation([sum(seed) / len(seed) for seed in seeds]) if len(seeds) > 1 else None


def p_value_text(metric: str, p_value: float, at_floor: bool = False) -> str:
    """A p-value as tables show it; empty for costs, which are left out of the correction.

    At the floor of the permutations it is a bound, rounded up.
    """
    if metric in COSTS:
        return ""
    if at_floor or p_value < 0.001:
        return f"<{max(1, math.ceil(p_value * 1000)) / 1000:.3f}"
    return f"{p_value:.3f}"


class Difference(NamedTuple):
    """The difference in a metric between two sets of runs, paired by question and seed.

    Attributes:
        before: the mean on the questions that all runs have.
        after: the mean of the other runs on the same questions.
        found: the difference with its uncertainty over seeds and questions.
        seeds: how many pairs of runs.
        questions: how many questions all runs have.
    """

    before: float
    after: float
    found: TwoWay
    seeds: int
    questions: int


def paired(before: Runs, after: Runs) -> list[tuple[Run, Run]]:
    """The runs of two cells that are compared: of the same seed; a side without seeds stands beside every seed."""
    if None in before:
        return [(before[None], run) for run in after.values()]
    if None in after:
        return [(run, after[None]) for run in before.values()]
    return [(before[seed], after[seed]) for seed in before if seed in after]


def difference(name: str, before: Runs, after: Runs) -> Difference | None:
    """A metric of the second runs minus that of the first ones; None if they share no seed or question that has it.

    Raises:
        UserError: the runs were scored by different rules, or mean different questions by one id.
    """
    pairs = paired(before, after)
    runs = [run for side in zip(*pairs, strict=True) for run in side]
    if runs:
        check_comparable(runs)
    values = [(by_question(name, one), by_question(name, other)) for one, other in pairs]
    shared = [id for id in (values[0][0] if values else ()) if all(id in one and id in other for one, other in values)]
    if not shared:
        return None
    sides = [[statistics.fmean(side[id] for id in shared) for side in each] for each in zip(*values, strict=True)]
    found = two_way([[other[id] - one[id] for id in shared] for one, other in values])
    return Difference(statistics.fmean(sides[0]), statistics.fmean(sides[1]), found, len(pairs), len(shared))
