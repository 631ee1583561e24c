"""judged/NAME.jsonl in a run's folder: a judge model's reply on each question, and the scores that follow."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notewriter.artifacts.reading import read_record, record_of
from notewriter.ground import jsonl

JUDGEMENT_SCHEMA = "notewriter/judgement/1"

FOLDER = "judged"
"""The folder in a run's folder that contains its judgements, all by one judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of one question.

    Args:
        question_id: the question.
        prediction: the answer that was judged.
        model: the judge's model.
        scores: metric -> value; empty where there is a `reason`.
        reason: why there are no scores.
        refusal: the endpoint's message where it refused the request.
        counts: numbers that belong to the scores.
        replies: the judge's raw replies.
        prompt_tokens: tokens sent to the judge.
        cached_tokens: those of them that the server had in its prefix cache.
        completion_tokens: tokens written by the judge.
        seconds: time spent waiting for the judge.
        ended: the clock's time at its last reply, in seconds since 1970; 0 where it is unknown.
    """

    question_id: str
    prediction: str
    model: str
    scores: dict[str, float]
    reason: str
    refusal: str = ""
    counts: dict[str, int]
    replies: list[str]
    prompt_tokens: int
    cached_tokens: int = 0
    completion_tokens: int
    seconds: float = 0.0
    ended: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The line in the judgement's file, with its schema."""
        return record_of(self, JUDGEMENT_SCHEMA)


def read_judgements(path: Path) -> dict[str, Judgement]:
    """A file of judgements by question id; an interrupted command's partial last line is left out.

    Raises:
        UserError: a line is not a judgement.
    """
    remedy = f"remove {path.parent} and run `notewriter judge` again"
    judgements = (
        read_record(record, Judgement, JUDGEMENT_SCHEMA, f"{path}:{number}", remedy)
        for number, record in jsonl.read(path, journal=True)
    )
    return {judgement.question_id: judgement for judgement in judgements}
