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
from notewriter.models.prices import cost, prices_of


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


PerQuestion = dict[str, float]
"""Question id -> value; questions without one are left out."""


def _each(value: Callable[[Prediction], float | None]) -> Callable[[Finished], PerQuestion]:
    def values(run: Finished) -> PerQuestion:
        each = {id: value(prediction) for id, prediction in run.predictions.items()}
        return {id: float(number) for id, number in each.items() if number is not None}

    return values


def _tokens(kind: str, *, notes: bool) -> Callable[[Finished], PerQuestion]:
    def values(run: Finished) -> PerQuestion:
        return {
            id: float(sum(getattr(call.completion, kind) for call in calls if (call.role == "notes") == notes))
            for id, calls in run.calls.items()
        }

    return values


def _seconds(run: Finished) -> PerQuestion:
    return {id: sum(call.completion.seconds for call in calls) for id, calls in run.calls.items()}


def _money(run: Finished) -> PerQuestion:
    config = read_config(run.folder)
    prices = prices_of(config.get("prices") or {}, config.get("models") or {})
    if not prices:
        return {}
    return {
        id: sum(
            cost(prices, call.role, call.completion.prompt_tokens, call.completion.completion_tokens) for call in calls
        )
        for id, calls in run.calls.items()
    }


def _fewer(run: Finished) -> PerQuestion:
    """Of right answers whose gold documents are known; none where nothing was searched (`scoring.fewer_searches`)."""
    counted = {id: each for id, each in run.predictions.items() if each.gold_documents}
    if not any(each.retrievals for each in counted.values()):
        return {}
    return {id: float(each.retrievals < each.gold_documents) for id, each in counted.items() if is_right(each)}


def _count(name: str, label: str, meaning: str, decimals: int = 0) -> Metric:
    return Metric(name, label, meaning, better=None, decimals=decimals, share=False)


SHOWN: dict[str, tuple[Metric, Callable[[Finished], PerQuestion]]] = {
    metric.name: (metric, values)
    for metric, values in (
        (
            replace(METRICS["retrievals"], decimals=2),
            _each(lambda prediction: prediction.retrievals),
        ),
        (
            _count("searches_when_right", "Searches, if right", "Searches of the questions with a full score.", 2),
            _each(lambda prediction: prediction.retrievals if is_right(prediction) else None),
        ),
        (
            _count("searches_when_wrong", "Searches, if wrong", "Searches of the questions without a full score.", 2),
            _each(lambda prediction: None if is_right(prediction) else prediction.retrievals),
        ),
        (
            Metric("fewer_searches", "Fewer searches", "Share of right answers with fewer searches than gold pages."),
            _fewer,
        ),
        (
            Metric("no_search", "No search", "Share of questions without a single search.", better="lower"),
            _each(lambda prediction: float(not prediction.retrievals)),
        ),
        (
            Metric("errors", "Errors", "Share of questions whose prompts the model's context cannot hold.", "lower"),
            _each(lambda prediction: float(bool(prediction.error))),
        ),
        (
            _count("words_retrieved", "Words retrieved", "Length of the retrieved passages.", 2),
            _each(lambda prediction: prediction.words_retrieved),
        ),
        (
            _count("words_answered_from", "Words answered from", "Length of the text before the answer.", 2),
            _each(lambda prediction: prediction.words_answered_from),
        ),
        (
            _count("main_prompt_tokens", "Main tokens in", "Tokens sent to all models but the note-taker."),
            _tokens("prompt_tokens", notes=False),
        ),
        (
            _count("main_completion_tokens", "Main tokens out", "Tokens written by all models but the note-taker."),
            _tokens("completion_tokens", notes=False),
        ),
        (
            _count("notes_prompt_tokens", "Notes tokens in", "Tokens sent to the note-taker."),
            _tokens("prompt_tokens", notes=True),
        ),
        (
            _count("notes_completion_tokens", "Notes tokens out", "Tokens written by the note-taker."),
            _tokens("completion_tokens", notes=True),
        ),
        (replace(METRICS["seconds"], decimals=2), _seconds),
        (_count("money", "Money", "Price of a question's tokens.", 6), _money),
    )
}
"""What a table can show besides the scores of `evaluation.catalogue`, with what computes it for each question."""

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
        return sum(sum(_seconds(sample).values()) for sample in samples) / 60 / len(samples)
    if name == "compression":
        costs = [read_costs(sample.folder / "costs.json") for sample in samples]
        ratios = [each.compression for each in costs if each and each.compression]
        return sum(ratios) / len(ratios) if ratios else None
    values = over_seeds([_per_question(name, sample) for sample in samples])
    counted = [value for id, value in values.items() if questions is None or id in questions]
    scale = 100 if metric_shown(name).share else 1
    return bootstrap_interval([scale * value for value in counted]) if counted else None


def _per_question(name: str, run: Finished) -> PerQuestion:
    if name in SHOWN:
        return SHOWN[name][1](run)
    return {id: each.scores[name] for id, each in run.predictions.items() if name in each.scores}
