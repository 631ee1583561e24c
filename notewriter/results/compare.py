"""Runs, or groups of seeds, side by side on the questions they share."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from notewriter.artifacts.metrics import Interval, read_metrics
from notewriter.artifacts.predictions import COSTS, Prediction, read_predictions
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
from notewriter.results.runs import Run


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


Comparison = dict[str, Paired]
"""Score or cost -> its values on both sides."""


def compare(before: list[Path], after: list[Path]) -> Comparison:
    """Compare run folders on the questions they share, by the scores and costs that all of them have.

    Several folders on one side are one configuration under several seeds. Differences are `after - before`, paired by
    question, with 95% bootstrap intervals and p-values corrected for the number of scores.

    Raises:
        UserError: see `compare_uncorrected`.
    """
    (comparison,) = corrected([compare_uncorrected(before, after)])
    return comparison


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons that are read together, their p-values corrected for the number of scores in all of them (`holm`)."""
    p_values = [
        paired.p_value for comparison in comparisons for metric, paired in comparison.items() if metric not in COSTS
    ]
    remaining = iter(holm(p_values))
    return [
        {
            metric: paired if metric in COSTS else replace(paired, p_value=next(remaining))
            for metric, paired in comparison.items()
        }
        for comparison in comparisons
    ]


def compare_uncorrected(before: list[Path], after: list[Path]) -> Comparison:
    """`compare` with uncorrected p-values (`paired_p_value`).

    Raises:
        UserError: files that are missing or malformed, runs scored by different metric families, runs without a common
            question, or an id that stands for different questions.
    """
    runs = [*before, *after]
    read = [read_predictions(run / "predictions.jsonl") for run in runs]
    check_comparable(runs, [read_metrics(run / "metrics.json").family for run in runs], read)
    shared = [question for question in read[0] if all(question in predictions for predictions in read)]
    if not shared:
        folders = " and ".join(map(str, runs))
        raise UserError(f"{folders} have no question in common; evaluate all on one dataset and split")

    comparison: Comparison = {}
    for metric in dict.fromkeys(metric for question in shared for metric in read[0][question].scores):
        scored = [each for each in shared if all(metric in predictions[each].scores for predictions in read)]
        if scored:
            scores = [[predictions[each].scores[metric] for each in scored] for predictions in read]
            comparison[metric] = compare_scores(scores[: len(before)], scores[len(before) :])
    for cost in COSTS:
        costs = [[float(predictions[each].cost(cost)) for each in shared] for predictions in read]
        comparison[cost] = compare_scores(costs[: len(before)], costs[len(before) :])
    return comparison


def check_comparable(runs: Sequence[Path], families: Sequence[str], read: Sequence[Mapping[str, Prediction]]) -> None:
    """Check that all runs have one metric family and mean one question by an id.

    Args:
        runs: what the runs are called in an error.
        families: the metric family of each.
        read: the predictions of each.

    Raises:
        UserError: they do not; names two of the runs.
    """
    first, *others = runs
    for run, family, predictions in zip(others, families[1:], read[1:], strict=True):
        if family != families[0]:
            raise UserError(
                f"{first} was scored by {families[0]!r} and {run} by {family!r}, whose rules differ; "
                "evaluate both with one metric family"
            )
        for question in read[0].keys() & predictions.keys():
            if read[0][question].question != predictions[question].question:
                raise UserError(
                    f"{first} and {run}: question {question!r} has a different text in each; "
                    "evaluate both on one question file"
                )


def compare_scores(before: list[list[float]], after: list[list[float]]) -> Paired:
    """Compare one score or measure; each side has the shape (seeds, questions)."""
    left, right = _averages(before), _averages(after)
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


def _averages(seeds: list[list[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*seeds, strict=True)]


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


Runs = Mapping[int | None, Run]
"""Seed -> the run of a cell; the seed is None for a cell without seeds."""


class Difference(NamedTuple):
    """What runs have more of a metric than others, paired by question and seed.

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
        check_comparable(*zip(*((run.folder, run.family, run.predictions) for run in runs), strict=True))
    values = [(by_question(name, one), by_question(name, other)) for one, other in pairs]
    shared = [id for id in (values[0][0] if values else ()) if all(id in one and id in other for one, other in values)]
    if not shared:
        return None
    sides = [[statistics.fmean(side[id] for id in shared) for side in each] for each in zip(*values, strict=True)]
    found = two_way([[other[id] - one[id] for id in shared] for one, other in values])
    return Difference(statistics.fmean(sides[0]), statistics.fmean(sides[1]), found, len(pairs), len(shared))
