"""Every score and cost that a run may have, collected from the modules that compute them."""

from notewriter.evaluation import accounting, evidence, likelihood, next_search, notes
from notewriter.evaluation.judgements import JUDGEMENTS
from notewriter.evaluation.metrics import FAMILIES
from notewriter.evaluation.metrics.metric import Family, Metric
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError

OF_RUNS: dict[str, Metric] = {
    metric.name: metric
    for metrics in (
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
"""The scores and costs of a run whichever family scores its answers."""

METRICS: dict[str, Metric] = {
    metric.name: metric for name in FAMILIES if name in FAMILIES.ours for metric in FAMILIES[name].metrics
} | OF_RUNS

SHOWN = frozenset(
    {
        *("searches_when_right", "searches_when_wrong", "fewer_searches", "no_search", "errors"),
        *("words_retrieved", "words_answered_from", "money", "compression", "minutes"),
        *("main_prompt_tokens", "main_completion_tokens", "notes_prompt_tokens", "notes_completion_tokens"),
        *("f1_deviation", "explained_accuracy_deviation"),
    }
)
"""The names of what tables compute of any run besides `OF_RUNS` (`notewriter.results.measures`)."""

HEADLINE = ("f1", "acc", "str_em", "loose")
"""The score that is put first is the first of these that a run has."""


def check_family(family: str) -> None:
    """Check that a family exists and can score, before answers are paid for.

    Raises:
        UserError: no such family, a package that it needs is not installed, or it has a metric with the name of another
            score.
    """
    chosen: Family = choose("metric family", family, FAMILIES)
    chosen.check()
    for metric in chosen.metrics:
        if metric.name in OF_RUNS or metric.name in SHOWN:
            raise UserError(
                f"metric family {family}: {metric.name!r} is a score of every run; choose another name for the metric"
            )


def metric_named(name: str) -> Metric:
    """The metric of that name; an undeclared one is labelled with its name, and higher is better."""
    # Looking for other packages' metrics reads the files of every installed package.
    if name in METRICS:
        return METRICS[name]
    others = (metric for family in FAMILIES.installed() for metric in family.metrics if metric.name == name)
    return next(others, None) or Metric(name, name, "")
