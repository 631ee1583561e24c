"""A question's rollout leaves a trace, the trace becomes a prediction, predictions become the summary."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from notewriter import __version__
from notewriter.artifacts.metrics import FewerSearches, Metrics, Summary
from notewriter.artifacts.predictions import COSTS, Prediction
from notewriter.artifacts.traces import Trace
from notewriter.evaluation import metrics
from notewriter.evaluation.catalogue import OF_RUNS, check_family
from notewriter.evaluation.evidence import gold_documents, reference_of, supporting_recall
from notewriter.evaluation.metrics import check_questions
from notewriter.evaluation.notes import note_scores
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.text import words_in
from notewriter.ground.typed import misfit
from notewriter.models.client import RequestRefused
from notewriter.rollouts.method import Method
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

RIGHT = ("judged_accuracy", "explained_accuracy", "graded_accuracy", "acc", "em", "strict", "str_hit")
"""Scores that are 1 for a right answer; a judge takes precedence over the benchmark's own scorer."""


async def trace_of(question: Question, resources: Resources, method: Method, options: dict[str, Any]) -> dict[str, Any]:
    """Run a method on one question; returns the line in traces.jsonl.

    A request that the endpoint refuses, such as a prompt longer than the model's context, leaves the question without
    an answer and the reason in the trace; it counts as wrong and as an error.

    Raises:
        UserError: the method, somebody else's, failed.
    """
    rollout = Rollout(question, method.name, resources)
    rollout.trace.retrieves = method.retrieves
    try:
        rollout.trace.answer = await rollout.follow(method, options)
    except RequestRefused as refusal:
        rollout.trace.error = str(refusal)
    return rollout.trace.to_dict()


def prediction_of(question: Question, trace: Trace, family: str) -> Prediction:
    """A question's prediction: the answer, the scores of answer, note and retrieval, and the costs.

    After an error every score is 0, including those of a note that had been written before it; a score of which less is
    better is left out.

    Raises:
        UserError: see `notewriter.evaluation.metrics.score`.
    """
    scores = metrics.score(family, trace.answer, question)
    if trace.note is not None:
        scores |= note_scores(trace.note, question, _facts_found(trace, question))
    scores |= supporting_recall(trace, question)
    if trace.error:
        known = (*metrics.FAMILIES[family].metrics, *OF_RUNS.values())
        less_is_better = {metric.name for metric in known if metric.better == "lower"}
        scores = {name: 0.0 for name in scores if name not in less_is_better}
    completions = [step.completion for step in trace.generations]
    reference = reference_of(trace, question.question) or ""
    return Prediction(
        question_id=question.id,
        question=question.question,
        answers=list(question.answers),
        prediction=trace.answer,
        note=trace.note or "",
        error=trace.error,
        scores=scores,
        calls=len(completions),
        retrievals=trace.searches,
        prompt_tokens=sum(completion.prompt_tokens for completion in completions),
        completion_tokens=sum(completion.completion_tokens for completion in completions),
        words_retrieved=sum(step.words for step in trace.retrievals),
        words_answered_from=len(words_in(reference)),
        gold_documents=gold_documents(question),
        counts=trace.counts,
        metadata=question.metadata,
    )


def _facts_found(trace: Trace, question: Question) -> list[str]:
    """The supporting facts that any retrieval of the trace found."""
    places = {place for step in trace.retrievals for place in step.facts or ()}
    return [fact for place, fact in enumerate(question.supporting_facts) if place in places]


def score_answers(
    answers: Mapping[str, str], questions: Sequence[Question], family: str, name: str = "answers"
) -> Metrics:
    """Score answers of any origin by the rules of a benchmark, with intervals.

    Args:
        answers: question id -> answer; a question without one scores as an empty answer.
        questions: the questions, with their gold answers (`load_questions`).
        family: the metric family, such as `hotpotqa`.
        name: the name in tables.

    Raises:
        UserError: no such family, no question, an answer that is no text or to none of the questions, or a question
            that lacks what the family scores against.
    """
    check_family(family)
    check_questions(family, questions)
    if not questions:
        raise UserError("questions: there are none; load them with load_questions")
    if problem := misfit(dict(answers), dict[str, str], "answers"):
        raise UserError(f"{problem}; give the id of each question with its answer, both as text")
    if strangers := answers.keys() - {question.id for question in questions}:
        raise UserError(
            f"answers: {len(strangers):,} of {len(answers):,} belong to none of the questions, such as "
            f"{min(strangers)!r}; give the questions that they answer, under the same ids"
        )
    traces = [Trace(question.id, "", answer=answers.get(question.id, "")) for question in questions]
    predictions = [prediction_of(question, trace, family) for question, trace in zip(questions, traces, strict=True)]
    return Metrics(
        name=name,
        dataset="",
        method="",
        model="",
        family=family,
        **summarise(predictions),
        config_hash="",
        version=__version__,
    )


def summarise(predictions: Iterable[Prediction]) -> Summary:
    """Counts, mean scores with their 95% bootstrap intervals, mean costs and `fewer_searches`."""
    predictions = list(predictions)
    scores: dict[str, list[float]] = {}
    for prediction in predictions:
        for metric, value in prediction.scores.items():
            scores.setdefault(metric, []).append(value)
    return Summary(
        questions=len(predictions),
        errors=sum(bool(prediction.error) for prediction in predictions),
        metrics={metric: bootstrap_interval(values) for metric, values in scores.items()},
        per_question={
            cost: sum(prediction.cost(cost) for prediction in predictions) / len(predictions) for cost in COSTS
        },
        fewer_searches=fewer_searches(predictions),
    )


def fewer_searches(predictions: Iterable[Prediction]) -> FewerSearches | None:
    """The number of right answers with fewer searches than gold documents (NotesWriting, section 6, Table 5).

    An answer is right according to the first of `RIGHT` that it was scored by. Only questions whose gold documents are
    known count; None where there are none of these, or where nothing was searched at all.
    """
    with_golds = [prediction for prediction in predictions if prediction.gold_documents]
    if not any(prediction.retrievals for prediction in with_golds):
        return None
    right = list(filter(is_right, with_golds))
    fewer = sum(prediction.retrievals < prediction.gold_documents for prediction in right)
    return FewerSearches(right=len(right), fewer=fewer)


def is_right(prediction: Prediction) -> bool:
    """Whether an answer has the full score by the first metric of `RIGHT` that it has."""
    return next((prediction.scores[key] for key in RIGHT if key in prediction.scores), 0.0) == 1
