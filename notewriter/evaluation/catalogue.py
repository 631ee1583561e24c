"""Every score and cost that a run may have, collected from the modules that compute them."""

from dataclasses import replace

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


def _count(name: str, label: str, meaning: str, decimals: int = 0) -> Metric:
    return Metric(name, label, meaning, better=None, decimals=decimals, share=False)


OF_TABLES: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        replace(OF_RUNS["retrievals"], decimals=2),
        _count("searches_when_right", "Searches, if right", "Searches of the questions with a full score.", 2),
        _count("searches_when_wrong", "Searches, if wrong", "Searches of the questions without a full score.", 2),
        Metric("fewer_searches", "Fewer searches", "Share of right answers with fewer searches than gold pages."),
        Metric("no_search", "No search", "Share of questions without a single search.", better="lower"),
        Metric("errors", "Errors", "Share of questions whose prompts the model's context cannot hold.", "lower"),
        _count("words_retrieved", "Words retrieved", "Length of the retrieved passages.", 2),
        _count("words_answered_from", "Words answered from", "Length of the text before the answer.", 2),
        _count("main_prompt_tokens", "Main tokens in", "Tokens sent to all models but the note-taker."),
        _count("main_completion_tokens", "Main tokens out", "Tokens written by all models but the note-taker."),
        _count("notes_prompt_tokens", "Notes tokens in", "Tokens sent to the note-taker."),
        _count("notes_completion_tokens", "Notes tokens out", "Tokens written by the note-taker."),
        replace(OF_RUNS["seconds"], decimals=2),
        _count("money", "Money", "Price of a question's tokens.", 6),
        _count("compression", "Compression", "Words retrieved per word answered from, over all questions.", 2),
        _count("minutes", "Minutes", "Minutes of the model calls of all questions, added up.", 1),
        _count("f1_deviation", "F1, deviation", "Standard deviation of the means of the samples, in percent.", 2),
        _count("explained_accuracy_deviation", "GPT-4 score, deviation", "The same for the judge's score.", 2),
    )
}
"""Measures that tables compute of a run whichever family scored it (`notewriter.results.measures` has the values)."""

HEADLINE = ("f1", "acc", "str_em", "loose")
"""Candidates for the main score of a run: the first of these that it has."""


def check_family(family: str) -> None:
    """Check that a family exists and can score, before answers are paid for.

    Raises:
        UserError: no such family, a package that it needs is not installed, or it has a metric with the name of another
            score.
    """
    chosen: Family = choose("metric family", family, FAMILIES)
    chosen.check()
    for metric in chosen.metrics:
        if metric.name in OF_RUNS or metric.name in OF_TABLES:
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
