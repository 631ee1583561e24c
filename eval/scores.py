"""Every score and cost that a run may have, gathered from those who compute them."""

from eval import accounting, notes
from eval.judgements import JUDGEMENTS
from eval.metrics import FAMILIES
from eval.metrics.metric import Metric

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metrics in (
        *(family.metrics for family in FAMILIES.values()),
        *(judgement.metrics for judgement in JUDGEMENTS.values()),
        accounting.METRICS,
        notes.METRICS,
    )
    for metric in metrics
}


def metric_named(name: str) -> Metric:
    """The metric of that name; one that nobody declares goes by its name, and more of it is better."""
    return METRICS.get(name) or Metric(name, name, "")
