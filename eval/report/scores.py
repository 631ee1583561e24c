"""Which scores and costs the report shows, and what they are called there."""

from collections.abc import Sequence

from eval.accounting import COSTS
from eval.report.runs import Run

MEANINGS: dict[str, tuple[str, str]] = {
    "em": ("Exact match", "Share of predictions that are a gold answer, but for case, punctuation and articles."),
    "f1": ("Token F1", "Overlap of the words of prediction and gold answer, 0 to 1; the best gold answer counts."),
    "acc": ("Accuracy", "Share of predictions that are right by the benchmark's own rule."),
    "str_em": ("Short answers in the answer", "Share of a question's short answers that stand in the long answer."),
    "str_hit": ("All short answers in the answer", "Share of questions whose short answers all stand in the answer."),
    "loose": ("Parts of the answer found", "Share of the parts of a structured answer that stand in the prediction."),
    "strict": ("All parts of the answer found", "Share of questions whose answer was found with every part."),
    "judged_accuracy": ("Accuracy, by the judge", "Share of predictions that hold a gold answer, says a judge model."),
    "chain_efficiency": ("Efficiency of the chain (0 to 5)", "A judge model's rating of the steps; 5 is the best."),
    "chain_redundancy": ("Redundancy of the chain (0 to 5; 5: none)", "A judge model's rating; 5 is none at all."),
    "chain_coherence": ("Coherence of the chain (0 to 5)", "A judge model's rating of the steps; 5 is the best."),
    "knowledge_density": ("Knowledge density", "Share of the note that a judge model marks as evidence."),
    "supporting_recall": ("Gold passages retrieved", "Share of the passages needed for the answer that were found."),
    "note_fact_recall": ("Supporting facts in the note", "Share of the supporting facts' words that the note holds."),
    "note_has_answer": ("Gold answer in the note", "Share of questions whose note holds a gold answer word for word."),
    "note_words": ("Words in the note", "Length of the final note; more is neither better nor worse."),
    "calls": ("Model calls", "Requests to a language model, judges of the method among them."),
    "retrievals": ("Retrievals", "Queries sent to the passage index."),
    "prompt_tokens": ("Prompt tokens", "Tokens sent to models."),
    "cached_tokens": ("Prompt tokens from the cache", "Those of them that the server had in its prefix cache."),
    "completion_tokens": ("Completion tokens", "Tokens written by models."),
    "seconds": ("Seconds of model calls", "Time spent waiting for models, calls at the same time counted one by one."),
}
"""A metric or cost -> what it is called on the page and what it says; others go by their own name."""

LENGTHS = {"note_words", *COSTS}
"""Counts, of which neither more nor less is better in itself."""

HEADLINE = ("f1", "acc", "str_em", "loose")
"""The score that is held against costs and taken apart by kinds of questions: the first of these, else any share."""


def label(metric: str) -> str:
    """What a metric or a cost is called."""
    return MEANINGS[metric][0] if metric in MEANINGS else metric


def measured(runs: Sequence[Run]) -> list[str]:
    """The metrics that any run has, in the order in which they come."""
    return list(dict.fromkeys(metric for run in runs for metric in run.metrics["metrics"]))


def shares(runs: Sequence[Run]) -> list[str]:
    """The metrics whose values lie in [0, 1] for every question of every run."""
    return [metric for metric in measured(runs) if metric not in LENGTHS and _is_share(runs, metric)]


def _is_share(runs: Sequence[Run], metric: str) -> bool:
    values = [record["scores"].get(metric, 0) for run in runs for record in run.predictions.values()]
    return all(0 <= value <= 1 for value in values)


def headline(runs: Sequence[Run]) -> str | None:
    """The first score of `HEADLINE` that a run has, else the first share."""
    found = shares(runs)
    return next((metric for metric in (*HEADLINE, *found) if metric in found), None)
