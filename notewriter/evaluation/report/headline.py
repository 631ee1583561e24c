"""Which scores the report shows, and which of them it puts first."""

from collections.abc import Sequence

from notewriter.evaluation.catalogue import HEADLINE, metric_named
from notewriter.evaluation.report.runs import Run


def measured(runs: Sequence[Run]) -> list[str]:
    """The metrics that any run has, in the order in which they appear."""
    return list(dict.fromkeys(metric for run in runs for metric in run.metrics.metrics))


def shares(runs: Sequence[Run]) -> list[str]:
    """The metrics whose values lie in [0, 1] for every question of every run."""
    return [metric for metric in measured(runs) if metric_named(metric).better is not None and _is_share(runs, metric)]


def _is_share(runs: Sequence[Run], metric: str) -> bool:
    values = (prediction.scores.get(metric, 0) for run in runs for prediction in run.predictions.values())
    return all(0 <= value <= 1 for value in values)


def headline(runs: Sequence[Run]) -> str | None:
    """The first score of `HEADLINE` that a run has, else the first share; None without any."""
    found = shares(runs)
    return next((metric for metric in (*HEADLINE, *found) if metric in found), None)
