"""The measures of runs, and the place of the value of each; `evaluation.catalogue` has their labels."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.predictions import Prediction
from notewriter.evaluation import likelihood, next_search, notes
from notewriter.evaluation.catalogue import HEADLINE, OF_TABLES, metric_named
from notewriter.evaluation.metrics.metric import Metric
from notewriter.evaluation.scoring import is_right
from notewriter.evaluation.statistics import bootstrap_interval, over_seeds, standard_deviation
from notewriter.ground.records import Question
from notewriter.ground.text import first_words
from notewriter.results.runs import Run

Value = Callable[[Run, Prediction], float | None]
"""A question's value in a run; None leaves the question out."""


def _later(name: str, found: Callable[[Run], Mapping[str, Mapping[str, float]]]) -> Value:
    """A score of a run's notes that is found when a page shows it; published notes have it."""
    return lambda run, of: (found(run).get(of.question_id, {}) if run.published is None else of.scores).get(name)


def _compression(runs: Sequence[Run]) -> float | None:
    ratios = [run.costs.compression for run in runs if run.costs and run.costs.compression]
    return sum(ratios) / len(ratios) if ratios else None


def _minutes(runs: Sequence[Run]) -> float:
    return sum(run.seconds(each) for run in runs for each in run.predictions.values()) / 60 / len(runs)


def _deviation(name: str, runs: Sequence[Run]) -> float | None:
    found = score(name, runs)
    return 100 * found.deviation if found and len(found.runs) > 1 else None


VALUES: dict[str, Value] = {
    **{metric.name: _later(metric.name, lambda run: run.next_search) for metric in next_search.METRICS},
    **{metric.name: _later(metric.name, lambda run: run.subjects) for metric in notes.NAMES},
    "retrievals": lambda run, of: of.retrievals,
    "searches_when_right": lambda run, of: of.retrievals if is_right(of) else None,
    "searches_when_wrong": lambda run, of: None if is_right(of) else of.retrievals,
    "fewer_searches": Run.fewer_searches,
    "no_search": lambda run, of: not of.retrievals,
    "errors": lambda run, of: bool(of.error),
    "words_retrieved": lambda run, of: of.words_retrieved,
    "words_answered_from": lambda run, of: of.words_answered_from,
    "main_prompt_tokens": lambda run, of: run.tokens("prompt_tokens", of, notes=False),
    "main_completion_tokens": lambda run, of: run.tokens("completion_tokens", of, notes=False),
    "notes_prompt_tokens": lambda run, of: run.tokens("prompt_tokens", of, notes=True),
    "notes_completion_tokens": lambda run, of: run.tokens("completion_tokens", of, notes=True),
    "seconds": Run.seconds,
    "money": Run.money,
}
"""Measure -> the function of its values; any other measure is the score of its name in predictions.jsonl.

These are columns of papers' tables and experiments' pages (`catalogue.OF_TABLES` has their words). The rows of report
and compare are scores, which belong to a metric family or to `notes.note_scores`, and costs.
"""

TOGETHER: dict[str, Callable[[Sequence[Run]], float | None]] = {
    "compression": _compression,
    "minutes": _minutes,
    "f1_deviation": partial(_deviation, "f1"),
    "explained_accuracy_deviation": partial(_deviation, "explained_accuracy"),
}
"""Measure -> its value of all runs of a cell together, which has no interval."""


def measure(name: str) -> Metric:
    """The label, direction and decimals of a measure in a table of cells."""
    return OF_TABLES.get(name) or metric_named(name)


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
    value: Value = VALUES.get(name) or (lambda run, of: of.scores.get(name))
    values = {id: value(run, each) for id, each in run.predictions.items() if wanted(each)}
    return {id: float(value) for id, value in values.items() if value is not None}


class Score(NamedTuple):
    """A cell's runs by a measure: samples of the same questions, or seeds.

    Attributes:
        interval: the mean over runs and questions, with its interval over the questions that all runs have.
        runs: the mean of each run over the same questions.
    """

    interval: Interval
    runs: list[float]

    @property
    def deviation(self) -> float:
        """The standard deviation over the runs."""
        return standard_deviation(self.runs)


def score(name: str, runs: Iterable[Run], wanted: Wanted = all_questions) -> Score | None:
    """A measure over the wanted questions, of each the mean of its values in all runs; None if none has any."""
    values = [by_question(name, run, wanted) for run in runs]
    if not (means := over_seeds(values)):
        return None
    return Score(
        bootstrap_interval(list(means.values())), [statistics.fmean(each[id] for id in means) for each in values]
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
