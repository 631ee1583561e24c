"""predictions.jsonl: a run's answer to each question, with its scores and costs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from notewriter.artifacts.reading import check_present, read_record, record_of
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

PREDICTION_SCHEMA = "notewriter/prediction/1"

REMEDY = "run the evaluation again"

Cost = Literal["calls", "retrievals", "prompt_tokens", "completion_tokens"]

COSTS: tuple[Cost, ...] = get_args(Cost)
"""The costs of a question, in counts that a repetition of the run reproduces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One question's answer.

    Args:
        question_id: the question.
        question: its text.
        answers: its gold answers, the main one first.
        prediction: the method's answer.
        note: the note it was written from, empty without one.
        error: why there is no answer; empty where there is one.
        scores: metric -> value.
        calls: model calls.
        retrievals: searches.
        prompt_tokens: tokens sent to models.
        completion_tokens: tokens written by models.
        words_retrieved: length of all retrieved passages.
        words_answered_from: length of the text the answer was written from.
        gold_documents: how many documents the question needs; 0 where this is unknown.
        counts: events that the method counted.
        metadata: the question's metadata.
    """

    question_id: str
    question: str
    answers: list[str]
    prediction: str
    note: str
    error: str
    scores: dict[str, float]
    calls: int
    retrievals: int
    prompt_tokens: int
    completion_tokens: int
    words_retrieved: int
    words_answered_from: int
    gold_documents: int = 0
    counts: dict[str, int]
    metadata: dict[str, object] = field(default_factory=dict)

    def cost(self, name: Cost) -> int:
        """One of `COSTS`."""
        value: int = getattr(self, name)
        return value

    def to_dict(self) -> dict[str, Any]:
        """The line in predictions.jsonl, with its schema."""
        return record_of(self, PREDICTION_SCHEMA)


def read_predictions(path: Path) -> dict[str, Prediction]:
    """A run's predictions by question id, in the order of the file.

    Raises:
        UserError: the folder or file is missing, a line is not a prediction, or two lines are of one question.
    """
    check_present(path)
    predictions: dict[str, Prediction] = {}
    for number, record in jsonl.read(path):
        prediction = read_record(record, Prediction, PREDICTION_SCHEMA, f"{path}:{number}", REMEDY)
        if prediction.question_id in predictions:
            raise UserError(f"{path}:{number}: duplicate question {prediction.question_id!r}; remove one of the lines")
        predictions[prediction.question_id] = prediction
    if not predictions:
        raise UserError(f"{path}: contains no predictions; {REMEDY}")
    return predictions


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write predictions as they come; the file appears when it is complete.

    Raises:
        UserError: it cannot be written.
    """
    jsonl.write(path, (prediction.to_dict() for prediction in predictions))
