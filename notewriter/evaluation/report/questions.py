"""What the list of questions, its filters and its search need before a question is opened."""

from collections.abc import Sequence

from notewriter.artifacts.predictions import Prediction
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.report.coding import gaps
from notewriter.evaluation.report.headline import shares
from notewriter.evaluation.report.runs import Run
from notewriter.evaluation.report.traces import CHUNK, Traces


def questions_of(runs: Sequence[Run]) -> list[Prediction]:
    """Every question that any run answered, as the first of these runs has it, in the first run's order.

    An id that stands for different questions in two runs is two questions.
    """
    found: dict[tuple[str, str], Prediction] = {}
    for run in runs:
        for prediction in run.predictions.values():
            found.setdefault((prediction.question_id, prediction.question), prediction)
    return list(found.values())


def index(runs: Sequence[Run], questions: Sequence[Prediction], traces: Traces) -> dict[str, object]:
    """What the trace viewer needs of all questions before one is opened."""
    return {
        "runs": [{"label": run.label, "colour": run.colour} for run in runs],
        "metrics": [{"name": metric, "label": metric_named(metric).label} for metric in shares(runs)],
        "chunk": CHUNK,
        "first_pieces": traces.first_pieces,
        "questions": [
            {
                "id": question.question_id,
                "question": question.question,
                "answers": question.answers,
                "runs": [_result(run, number, question, traces) for number, run in enumerate(runs)],
            }
            for question in questions
        ],
    }


def _result(run: Run, number: int, question: Prediction, traces: Traces) -> dict[str, object] | None:
    """How a run did on a question; None where it did not answer it."""
    prediction = _same_question(run, question)
    if prediction is None:
        return None
    return {
        "scores": prediction.scores,
        "failed": bool(traces.errors[number][question.question_id]),
        "trace": traces.places[number][question.question_id],
    }


def _same_question(run: Run, question: Prediction) -> Prediction | None:
    """A run's prediction for a question; None where it has none, or another question under the same id."""
    prediction = run.predictions.get(question.question_id)
    return prediction if prediction and prediction.question == question.question else None


def words(runs: Sequence[Run], questions: Sequence[Prediction]) -> dict[str, list[int]]:
    """The search index: each lower-case word of a prediction or a note -> the questions that have it, as `gaps`.

    It is smaller than the texts, since a word is stored once, and several runs' texts on a question are much alike.
    """
    found: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        predictions = [prediction for run in runs if (prediction := _same_question(run, question))]
        texts = [text for prediction in predictions for text in (prediction.prediction, prediction.note)]
        for word in sorted({word for text in texts for word in text.lower().split()}):
            found.setdefault(word, []).append(number)
    return {word: gaps(numbers) for word, numbers in sorted(found.items())}
