"""The catalogue of what is shown of runs: each measure's name, label, meaning, direction, and where its value lies."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.predictions import Prediction
from notewriter.evaluation import likelihood, next_search, notes
from notewriter.evaluation.catalogue import HEADLINE, METRICS, metric_named
from notewriter.evaluation.metrics.metric import Metric
from notewriter.evaluation.scoring import is_right
from notewriter.evaluation.statistics import bootstrap_interval, over_seeds, standard_deviation
from notewriter.ground.records import Question
from notewriter.ground.text import first_words
from notewriter.results.runs import Run


@dataclass(frozen=True)
class Measure:
    """A measure that a table shows of runs.

    Attributes:
        metric: its name, label, meaning, direction and decimals.
        value: a question's value in a run; None leaves the question out.
        of_runs: the value of all runs of a cell together, which has no interval, in place of `value`.
    """

    metric: Metric
    value: Callable[[Run, Prediction], float | None]
    of_runs: Callable[[Sequence[Run]], float | None] | None = None


def _scored(metric: Metric) -> Measure:
    """A score of predictions.jsonl."""
    return Measure(metric, lambda run, of: of.scores.get(metric.name))


def _searched(metric: Metric) -> Measure:
    """A score of a run's notes that are searched for when a page shows them."""
    return Measure(metric, lambda run, of: run.next_search.get(of.question_id, {}).get(metric.name))


def _named(metric: Metric) -> Measure:
    """A score of a run's notes that is told from their passages when a page shows it."""
    return Measure(metric, lambda run, of: run.names.get(of.question_id, {}).get(metric.name))


def _count(name: str, label: str, meaning: str, decimals: int = 0) -> Metric:
    return Metric(name, label, meaning, better=None, decimals=decimals, share=False)


def _tokens(of: str, kind: str) -> Measure:
    """The tokens of a question, sent to or written by the note-taker (`notes`) or all other models (`main`)."""
    way, verb = ("in", "sent to") if kind == "prompt_tokens" else ("out", "written by")
    whom = "the note-taker" if of == "notes" else "all models but the note-taker"
    metric = _count(f"{of}_{kind}", f"{of.capitalize()} tokens {way}", f"Tokens {verb} {whom}.")
    return Measure(metric, lambda run, each: run.tokens(kind, each, notes=of == "notes"))


def _summary(metric: Metric, of_runs: Callable[[Sequence[Run]], float | None]) -> Measure:
    return Measure(metric, lambda run, of: None, of_runs)


def _compression(runs: Sequence[Run]) -> float | None:
    ratios = [run.costs.compression for run in runs if run.costs and run.costs.compression]
    return sum(ratios) / len(ratios) if ratios else None


def _minutes(runs: Sequence[Run]) -> float:
    return sum(run.seconds(each) for run in runs for each in run.predictions.values()) / 60 / len(runs)


def _deviation(name: str) -> Callable[[Sequence[Run]], float | None]:
    def of_runs(runs: Sequence[Run]) -> float | None:
        found = score(name, runs)
        return 100 * found.deviation if found and len(found.runs) > 1 else None

    return of_runs


OF_ANY_RUN: dict[str, Measure] = {
    measure.metric.name: measure
    for measure in (
        Measure(replace(METRICS["retrievals"], decimals=2), lambda run, of: of.retrievals),
        Measure(
            _count("searches_when_right", "Searches, if right", "Searches of the questions with a full score.", 2),
            lambda run, of: of.retrievals if is_right(of) else None,
        ),
        Measure(
            _count("searches_when_wrong", "Searches, if wrong", "Searches of the questions without a full score.", 2),
            lambda run, of: None if is_right(of) else of.retrievals,
        ),
        Measure(
            Metric("fewer_searches", "Fewer searches", "Share of right answers with fewer searches than gold pages."),
            Run.fewer_searches,
        ),
        Measure(
            Metric("no_search", "No search", "Share of questions without a single search.", better="lower"),
            lambda run, of: not of.retrievals,
        ),
        Measure(
            Metric("errors", "Errors", "Share of questions whose prompts the model's context cannot hold.", "lower"),
            lambda run, of: bool(of.error),
        ),
        Measure(
            _count("words_retrieved", "Words retrieved", "Length of the retrieved passages.", 2),
            lambda run, of: of.words_retrieved,
        ),
        Measure(
            _count("words_answered_from", "Words answered from", "Length of the text before the answer.", 2),
            lambda run, of: of.words_answered_from,
        ),
        *(_tokens(of, kind) for of in ("main", "notes") for kind in ("prompt_tokens", "completion_tokens")),
        Measure(replace(METRICS["seconds"], decimals=2), Run.seconds),
        Measure(_count("money", "Money", "Price of a question's tokens.", 6), Run.money),
        _summary(
            _count("compression", "Compression", "Words retrieved per word answered from, over all questions.", 2),
            _compression,
        ),
        _summary(_count("minutes", "Minutes", "Minutes of the model calls of all questions, added up.", 1), _minutes),
        _summary(
            _count("f1_deviation", "F1, deviation", "Standard deviation of the means of the samples, in percent.", 2),
            _deviation("f1"),
        ),
        _summary(
            _count("explained_accuracy_deviation", "GPT-4 score, deviation", "The same for the judge's score.", 2),
            _deviation("explained_accuracy"),
        ),
    )
}
"""Measures that a run has whatever scored it."""

MEASURES: dict[str, Measure] = {
    **{name: _scored(metric) for name, metric in METRICS.items()},
    **{metric.name: _searched(metric) for metric in next_search.METRICS},
    **{metric.name: _named(metric) for metric in notes.NAMES},
    **OF_ANY_RUN,
}
"""Name -> measure; a score that a metric family of one's own declares needs no place here (`measure`)."""


def measure(name: str) -> Measure:
    """The measure of that name; of one that is not in the catalogue, the score of that name in predictions.jsonl."""
    return MEASURES.get(name) or _scored(metric_named(name))


HEADS = {
    notes.WORDS: "words",
    notes.FACTS: "facts",
    **{f"{notes.FACTS}_{words}": f"facts in {words}" for words in notes.BUDGETS},
    notes.WHOLE_FACTS: "whole facts in 40",
    notes.ANSWER: "answer",
    **{f"{notes.ANSWER}_{words}": f"answer in {words}" for words in notes.BUDGETS},
    notes.DENSITY: "density",
    notes.STANDS_ALONE: "stands alone",
    notes.NAMED: "named",
    **dict(zip((each.name for each in next_search.METRICS), ("answer found next", "passages found next"), strict=True)),
    likelihood.LIKELIHOOD.name: "likelihood",
    likelihood.YES_NO.name: "likelihood, yes or no",
}
"""Measure of a note -> the short head of its column, in the order of the columns."""

CURVE = (0, 5, 10, 15, 20, 30, 40, 60, 80, 100)
"""Words of notes at which curves are drawn."""


def facts_curve(written: Sequence[tuple[str, Question]], until: float = math.inf) -> list[tuple[int, float]]:
    """Each of `CURVE` -> the mean share of the supporting facts in so many first words of notes; ends beyond `until`.

    Questions without facts are left out; empty where all are.
    """
    shown = [words for number, words in enumerate(CURVE) if number == 0 or CURVE[number - 1] < until]
    quality = {
        words: [notes.note_quality(first_words(note, words), question) for note, question in written] for words in shown
    }
    values = {words: [each[notes.FACTS] for each in found if notes.FACTS in each] for words, found in quality.items()}
    return [(words, statistics.fmean(found)) for words, found in values.items() if found]


Wanted = Callable[[Prediction], bool]
"""Tells the questions that count."""


def all_questions(prediction: Prediction) -> bool:
    """Every question counts."""
    return True


def by_question(name: str, run: Run, wanted: Wanted = all_questions) -> dict[str, float]:
    """Question id -> a run's value of a measure; questions without one are left out."""
    value = measure(name).value
    values = {id: value(run, each) for id, each in run.predictions.items() if wanted(each)}
    return {id: float(value) for id, value in values.items() if value is not None}


class Score(NamedTuple):
    """A cell's runs by a measure: samples of the same questions, or seeds.

    Attributes:
        interval: the mean over runs and questions, with its interval over the questions that all runs have.
        runs: the mean of each run.
        questions: how many questions all runs have.
    """

    interval: Interval
    runs: list[float]
    questions: int

    @property
    def deviation(self) -> float:
        """The standard deviation over the runs."""
        return standard_deviation(self.runs)


def score(name: str, runs: Sequence[Run], wanted: Wanted = all_questions) -> Score | None:
    """A measure over the wanted questions, of each the mean of its values in all runs; None if none has any."""
    values = [by_question(name, run, wanted) for run in runs]
    if not (means := over_seeds(values)):
        return None
    return Score(
        bootstrap_interval(list(means.values())), [statistics.fmean(each.values()) for each in values], len(means)
    )


def measured(runs: Sequence[Run]) -> list[str]:
    """The scores that any run has, in the order in which they appear."""
    return list(dict.fromkeys(name for run in runs for name in run.metrics.metrics))


def shares(runs: Sequence[Run]) -> list[str]:
    """The scores whose values lie in [0, 1] for every question of every run."""
    return [
        name
        for name in measured(runs)
        if metric_named(name).better is not None
        and all(0 <= each.scores.get(name, 0) <= 1 for run in runs for each in run.predictions.values())
    ]


def headline(runs: Sequence[Run]) -> str | None:
    """The first score of `HEADLINE` that a run has, else the first share; None without any."""
    candidates = shares(runs)
    return next((name for name in (*HEADLINE, *candidates) if name in candidates), None)
