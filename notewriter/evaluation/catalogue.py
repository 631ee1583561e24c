"""Every score and cost that a run may have, collected from the modules that compute them."""

from notewriter.evaluation import accounting, evidence, likelihood, next_search, notes
from notewriter.evaluation.judgements import JUDGEMENTS
from notewriter.evaluation.metrics import FAMILIES
from notewriter.evaluation.metrics.metric import Metric

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metrics in (
        *(family.metrics for family in FAMILIES.values()),
        *(judgement.metrics for judgement in JUDGEMENTS.values()),
        evidence.METRICS,
        accounting.METRICS,
        notes.METRICS,
        notes.NAMES,
        next_search.METRICS,
        (likelihood.LIKELIHOOD, likelihood.YES_NO),
    )
    for metric in metrics
}

HEADLINE = ("f1", "acc", "str_em", "loose")
"""The score that is put first is the first of these that a run has."""


def metric_named(name: str) -> Metric:
    """The metric of that name; an undeclared one is labelled with its name, and higher is better."""
    # Looking for other packages' metrics reads the files of every installed package.
    if name in METRICS:
        return METRICS[name]
    others = (metric for family in FAMILIES.installed() for metric in family.metrics if metric.name == name)
    return next(others, None) or Metric(name, name, "")
