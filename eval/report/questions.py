"""What the list of questions, its filters and its search need before a question is opened."""

from collections.abc import Sequence
from typing import Any

from eval.report.coding import gaps
from eval.report.runs import Run
from eval.report.scores import shares
from eval.report.traces import CHUNK, Traces
from eval.scores import metric_named

Record = dict[str, Any]

Question = tuple[str, Record]
"""An id and what any run's predictions tell of the question."""


def questions_of(runs: Sequence[Run]) -> list[Question]:
    """`(id, prediction)` of every question of any run, in the first run's order.

    An id that stands for another question in another run is another question.
    """
    found: dict[tuple[str, str], Record] = {}
    for run in runs:
        for identifier, record in run.predictions.items():
            found.setdefault((identifier, record["question"]), record)
    return [(identifier, record) for (identifier, _), record in found.items()]


def index(runs: Sequence[Run], questions: Sequence[Question], traces: Traces) -> Record:
    """What the trace viewer needs of every question before one is opened."""
    return {
        "runs": [{"label": run.label, "colour": run.colour} for run in runs],
        "metrics": [{"name": metric, "label": metric_named(metric).label} for metric in shares(runs)],
        "chunk": CHUNK,
        "first_pieces": traces.first_pieces,
        "questions": [
            {
                "id": identifier,
                "question": record["question"],
                "answers": record["answers"],
                "runs": [
                    {
                        "scores": run.predictions[identifier]["scores"],
                        "failed": bool(traces.errors[number][identifier]),
                        "trace": traces.places[number][identifier],
                    }
                    if _has(run, identifier, record)
                    else None
                    for number, run in enumerate(runs)
                ],
            }
            for identifier, record in questions
        ],
    }


def _has(run: Run, identifier: str, record: Record) -> bool:
    """Whether a run answered this very question, not another one under the same id."""
    return identifier in run.predictions and run.predictions[identifier]["question"] == record["question"]


def words(runs: Sequence[Run], questions: Sequence[Question]) -> dict[str, list[int]]:
    """Each word of a prediction or a note, in lower case -> the questions that have it, as `gaps` of their numbers.

    Texts are longer than their words, each named once; those of several runs on one question are mostly the same.
    """
    found: dict[str, list[int]] = {}
    for number, (identifier, record) in enumerate(questions):
        texts = (
            run.predictions[identifier][key]
            for run in runs
            if _has(run, identifier, record)
            for key in ("prediction", "note")
        )
        for word in sorted({word for text in texts for word in text.lower().split()}):
            found.setdefault(word, []).append(number)
    return {word: gaps(numbers) for word, numbers in sorted(found.items())}
