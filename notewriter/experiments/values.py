"""What a table shows of a cell: a value for each question, and over the questions a mean with its interval."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from notewriter.artifacts.costs import read_costs
from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.predictions import Prediction, read_predictions
from notewriter.artifacts.run_folder import read_config
from notewriter.artifacts.traces import Generation, read_traces
from notewriter.evaluation.catalogue import METRICS
from notewriter.evaluation.metrics.metric import Metric
from notewriter.evaluation.scoring import is_right
from notewriter.evaluation.statistics import bootstrap_interval, over_seeds, standard_deviation
from notewriter.models.prices import Prices, cost, prices_of


@dataclass(frozen=True)
class Finished:
    """The run folder of a sample of a cell."""

    folder: Path

    @functools.cached_property
    def predictions(self) -> Mapping[str, Prediction]:
        """By question id."""
        return read_predictions(self.folder / "predictions.jsonl")

    @functools.cached_property
    def calls(self) -> Mapping[str, list[Generation]]:
        """The model calls by question id."""
        return {trace.question_id: trace.generations for trace in read_traces(self.folder / "traces.jsonl")}

    @functools.cached_property
    def prices(self) -> Prices:
        """Of its models; empty where it names none."""
        config = read_config(self.folder)
        return prices_of(config.get("prices") or {}, config.get("models") or {})

    @functools.cached_property
    def searches(self) -> bool:
        """Whether it searched for any question whose gold documents are known."""
        return any(each.gold_documents and each.retrievals for each in self.predictions.values())

    def tokens(self, kind: str, of: Prediction, *, notes: bool) -> int:
        """A question's tokens of the note-taker, or of all other models."""
        calls = [call for call in self.calls.get(of.question_id, []) if (call.role == "notes") == notes]
        return sum(getattr(call.completion, kind) for call in calls)

    def seconds(self, of: Prediction) -> float:
        """What a question's model calls took, added up."""
        return sum(call.completion.seconds for call in self.calls.get(of.question_id, []))

    def money(self, of: Prediction) -> float | None:
        """The price of a question's tokens; None without prices."""
        calls = [(call.role, call.completion) for call in self.calls.get(of.question_id, [])]
        spent = (cost(self.prices, role, each.prompt_tokens, each.completion_tokens) for role, each in calls)
        return sum(spent) if self.prices else None

    def fewer_searches(self, of: Prediction) -> bool | None:
        """Whether a right answer has fewer searches than gold documents (`scoring.fewer_searches`)."""
        counts = self.searches and of.gold_documents and is_right(of)
        return of.retrievals < of.gold_documents if counts else None


def _count(name: str, label: str, meaning: str, decimals: int = 0) -> Metric:
    return Metric(name, label, meaning, better=None, decimals=decimals, share=False)


SHOWN: dict[str, tuple[Metric, Callable[[Finished, Prediction], float | None]]] = {
    metric.name: (metric, value)
    for metric, value in (
        (replace(METRICS["retrievals"], decimals=2), lambda run, of: of.retrievals),
        (
            _count("searches_when_right", "Searches, if right", "Searches of the questions with a full score.", 2),
            lambda run, of: of.retrievals if is_right(of) else None,
        ),
        (
            _count("searches_when_wrong", "Searches, if wrong", "Searches of the questions without a full score.", 2),
            lambda run, of: None if is_right(of) else of.retrievals,
        ),
        (
            Metric("fewer_searches", "Fewer searches", "Share of right answers with fewer searches than gold pages."),
            Finished.fewer_searches,
        ),
        (
            Metric("no_search", "No search", "Share of questions without a single search.", better="lower"),
            lambda run, of: not of.retrievals,
        ),
        (
            Metric("errors", "Errors", "Share of questions whose prompts the model's context cannot hold.", "lower"),
            lambda run, of: bool(of.error),
        ),
        (
            _count("words_retrieved", "Words retrieved", "Length of the retrieved passages.", 2),
            lambda run, of: of.words_retrieved,
        ),
        (
            _count("words_answered_from", "Words answered from", "Length of the text before the answer.", 2),
            lambda run, of: of.words_answered_from,
        ),
        (
            _count("main_prompt_tokens", "Main tokens in", "Tokens sent to all models but the note-taker."),
            lambda run, of: run.tokens("prompt_tokens", of, notes=False),
        ),
        (
            _count("main_completion_tokens", "Main tokens out", "Tokens written by all models but the note-taker."),
            lambda run, of: run.tokens("completion_tokens", of, notes=False),
        ),
        (
            _count("notes_prompt_tokens", "Notes tokens in", "Tokens sent to the note-taker."),
            lambda run, of: run.tokens("prompt_tokens", of, notes=True),
        ),
        (
            _count("notes_completion_tokens", "Notes tokens out", "Tokens written by the note-taker."),
            lambda run, of: run.tokens("completion_tokens", of, notes=True),
        ),
        (replace(METRICS["seconds"], decimals=2), Finished.seconds),
        (_count("money", "Money", "Price of a question's tokens.", 6), Finished.money),
    )
}
"""What a table can show besides the scores of `evaluation.catalogue`, with a question's value; None leaves it out."""

SUMMARIES = {
    metric.name: metric
    for metric in (
        _count("compression", "Compression", "Words retrieved per word answered from, over all questions.", 2),
        _count("minutes", "Minutes", "Minutes of the model calls of all questions, added up.", 1),
        _count("f1_deviation", "F1, deviation", "Standard deviation of the means of the samples, in percent.", 2),
        _count("explained_accuracy_deviation", "GPT-4 score, deviation", "The same for the judge's score.", 2),
    )
}
"""Values of a whole cell, which have no interval."""


def metric_shown(name: str) -> Metric:
    """The metric of a column.

    Raises:
        KeyError: there is none of that name.
    """
    return SUMMARIES.get(name) or (SHOWN[name][0] if name in SHOWN else METRICS[name])


def gold_counts(samples: Sequence[Finished]) -> dict[int, set[str]]:
    """The questions that need so many documents, by that number; those of which it is unknown are left out."""
    counts: dict[int, set[str]] = {}
    for id, prediction in samples[0].predictions.items():
        if prediction.gold_documents:
            counts.setdefault(prediction.gold_documents, set()).add(id)
    return dict(sorted(counts.items()))


def value_of(
    name: str, samples: Sequence[Finished], questions: Collection[str] | None = None
) -> Interval | float | None:
    """The value of a column for the samples of a cell, in percent where the metric is a share; None if there is none.

    With several samples each question counts with the mean of its values; `questions` are the ids that count, all by
    default. Summaries, which come without an interval, are those of all questions.
    """
    if name.endswith("_deviation"):
        means = [value_of(name.removesuffix("_deviation"), [sample]) for sample in samples]
        numbers = [each.mean for each in means if isinstance(each, Interval)]
        return standard_deviation(numbers) if len(numbers) > 1 else None
    if name == "minutes":
        return sum(sum(_per_question("seconds", sample).values()) for sample in samples) / 60 / len(samples)
    if name == "compression":
        costs = [read_costs(sample.folder / "costs.json") for sample in samples]
        ratios = [each.compression for each in costs if each and each.compression]
        return sum(ratios) / len(ratios) if ratios else None
    values = over_seeds([_per_question(name, sample) for sample in samples])
    counted = [value for id, value in values.items() if questions is None or id in questions]
    scale = 100 if metric_shown(name).share else 1
    return bootstrap_interval([scale * value for value in counted]) if counted else None


def _per_question(name: str, run: Finished) -> dict[str, float]:
    """Question id -> value; questions without one are left out."""
    if name not in SHOWN:
        return {id: each.scores[name] for id, each in run.predictions.items() if name in each.scores}
    values = {id: SHOWN[name][1](run, each) for id, each in run.predictions.items()}
    return {id: float(value) for id, value in values.items() if value is not None}
