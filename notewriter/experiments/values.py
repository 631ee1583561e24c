"""What pages show of a cell: a value for each question, and over questions and runs a mean with its interval."""

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from notewriter.artifacts.costs import read_costs
from notewriter.artifacts.metrics import Interval, read_metrics
from notewriter.artifacts.predictions import Prediction, read_predictions
from notewriter.artifacts.run_folder import read_config
from notewriter.artifacts.traces import Generation, read_traces
from notewriter.evaluation import next_search
from notewriter.evaluation.catalogue import METRICS
from notewriter.evaluation.controls import readings
from notewriter.evaluation.metrics.metric import Metric
from notewriter.evaluation.next_search import Noted, scores_of, searched_again
from notewriter.evaluation.scoring import is_right
from notewriter.evaluation.statistics import TwoWay, bootstrap_interval, over_seeds, standard_deviation, two_way
from notewriter.ground.event_loop import run_async
from notewriter.models.prices import Prices, cost, prices_of
from notewriter.results.compare import check_comparable


@dataclass(frozen=True)
class Finished:
    """The run folder of a sample of a cell."""

    folder: Path

    @functools.cached_property
    def predictions(self) -> Mapping[str, Prediction]:
        """By question id."""
        return read_predictions(self.folder / "predictions.jsonl")

    @functools.cached_property
    def family(self) -> str:
        """The metric family that scored its answers."""
        return read_metrics(self.folder / "metrics.json").family

    @functools.cached_property
    def calls(self) -> Mapping[str, list[Generation]]:
        """The model calls by question id."""
        return {trace.question_id: trace.generations for trace in read_traces(self.folder / "traces.jsonl")}

    @functools.cached_property
    def next_search(self) -> Mapping[str, Mapping[str, float]]:
        """What a further search with the note finds, by question id (`evaluation.next_search`).

        Raises:
            UserError: the run's questions or index are no longer at hand.
        """
        noted = [Noted(each.question, each.passages, each.note) for each in readings(self.folder)]
        return run_async(_searched(noted, self.folder)) if noted else {}

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


@dataclass(frozen=True)
class Published(Finished):
    """A run whose folder may be gone, of which an experiment has published the notes and scores.

    Attributes:
        rows: its predictions by question id; what they cost is not known.
        scored_by: the metric family that scored the answers.
    """

    rows: Mapping[str, Prediction]
    scored_by: str

    @functools.cached_property
    def predictions(self) -> Mapping[str, Prediction]:
        """By question id."""
        return self.rows

    @functools.cached_property
    def family(self) -> str:
        """The metric family that scored its answers."""
        return self.scored_by

    @functools.cached_property
    def next_search(self) -> Mapping[str, Mapping[str, float]]:
        """What a further search with the note found, among its other scores."""
        return {id: each.scores for id, each in self.rows.items()}


async def _searched(noted: Sequence[Noted], run: Path) -> dict[str, dict[str, float]]:
    async with searched_again(run) as retriever:
        return await scores_of(noted, retriever)


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

NEXT_SEARCH = {metric.name: metric for metric in next_search.METRICS}
"""Scores of a run's notes that are searched for when a page shows them."""


def metric_shown(name: str) -> Metric:
    """The metric of a column.

    Raises:
        KeyError: there is none of that name.
    """
    return SUMMARIES.get(name) or (SHOWN[name][0] if name in SHOWN else None) or NEXT_SEARCH.get(name) or METRICS[name]


Runs = Mapping[int | None, Finished]
"""Seed -> the run of a cell; the seed is None for a cell without seeds."""

Wanted = Callable[[Prediction], bool]
"""Tells the questions that count."""


def all_questions(prediction: Prediction) -> bool:
    """Every question counts."""
    return True


class Score(NamedTuple):
    """What the runs of a cell have of a metric: samples of the same questions, or seeds.

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


def score(name: str, runs: Sequence[Finished], wanted: Wanted = all_questions) -> Score | None:
    """A metric on the questions that are wanted, each with the mean of its values in all runs; None if none has any."""
    values = [by_question(name, run, wanted) for run in runs]
    if not (means := over_seeds(values)):
        return None
    return Score(
        bootstrap_interval(list(means.values())), [statistics.fmean(each.values()) for each in values], len(means)
    )


def summary(name: str, runs: Sequence[Finished]) -> float | None:
    """One of `SUMMARIES` of the samples of a cell; None if there is none."""
    if name == "minutes":
        return sum(run.seconds(each) for run in runs for each in run.predictions.values()) / 60 / len(runs)
    if name == "compression":
        costs = [read_costs(run.folder / "costs.json") for run in runs]
        ratios = [each.compression for each in costs if each and each.compression]
        return sum(ratios) / len(ratios) if ratios else None
    found = score(name.removesuffix("_deviation"), runs)
    return 100 * found.deviation if found and len(found.runs) > 1 else None


def by_question(name: str, run: Finished, wanted: Wanted = all_questions) -> dict[str, float]:
    """Question id -> a run's value of a metric; questions without one are left out."""
    predictions = {id: each for id, each in run.predictions.items() if wanted(each)}
    if name in NEXT_SEARCH:
        return {id: scores[name] for id, scores in run.next_search.items() if id in predictions and name in scores}
    if name not in SHOWN:
        return {id: each.scores[name] for id, each in predictions.items() if name in each.scores}
    values = {id: SHOWN[name][1](run, each) for id, each in predictions.items()}
    return {id: float(value) for id, value in values.items() if value is not None}


class Difference(NamedTuple):
    """What runs have more of a metric than others, paired by question and seed.

    Attributes:
        before: the mean on the questions that all runs have.
        after: the mean of the other runs on the same questions.
        found: the difference with its uncertainty over seeds and questions.
        seeds: how many pairs of runs.
        questions: how many questions all runs have.
    """

    before: float
    after: float
    found: TwoWay
    seeds: int
    questions: int


def paired(before: Runs, after: Runs) -> list[tuple[Finished, Finished]]:
    """The runs of two cells that are compared: of the same seed; a side without seeds stands beside every seed."""
    if None in before:
        return [(before[None], run) for run in after.values()]
    if None in after:
        return [(run, after[None]) for run in before.values()]
    return [(before[seed], after[seed]) for seed in before if seed in after]


def difference(name: str, before: Runs, after: Runs) -> Difference | None:
    """A metric of the second runs minus that of the first ones; None if they share no seed or question that has it.

    Raises:
        UserError: the runs were scored by different rules, or mean different questions by one id.
    """
    pairs = paired(before, after)
    runs = [run for side in zip(*pairs, strict=True) for run in side]
    if runs:
        check_comparable(*zip(*((run.folder, run.family, run.predictions) for run in runs), strict=True))
    values = [(by_question(name, one), by_question(name, other)) for one, other in pairs]
    shared = [id for id in (values[0][0] if values else ()) if all(id in one and id in other for one, other in values)]
    if not shared:
        return None
    sides = [[statistics.fmean(side[id] for id in shared) for side in each] for each in zip(*values, strict=True)]
    found = two_way([[other[id] - one[id] for id in shared] for one, other in values])
    return Difference(statistics.fmean(sides[0]), statistics.fmean(sides[1]), found, len(pairs), len(shared))
