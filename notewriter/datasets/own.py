"""Our own JSON Lines: `questions.jsonl` and `corpus.jsonl`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question


def _question(record: dict[str, Any], place: str) -> Question:
    answers = reading.strings(record, "answers", place)
    if not answers:
        raise UserError(f"{place}: 'answers' is empty; give at least one gold answer")
    return Question(
        id=reading.get(record, "id", str, place),
        question=reading.get(record, "question", str, place),
        answers=answers,
        supporting_ids=reading.strings(record, "supporting_ids", place, optional=True),
        supporting_facts=reading.strings(record, "supporting_facts", place, optional=True),
        metadata=reading.get(record, "metadata", dict, place) if "metadata" in record else {},
    )


def load_corpus(path: Path) -> Iterator[Passage]:
    """Passages with `id`, `title` and `text`. That ids are unique is checked by the index that is built of them.

    Raises:
        UserError: a line is not a passage, or there is none.
    """
    place = ""
    for place, record in reading.records(path):
        yield Passage(*(reading.get(record, key, str, place) for key in ("id", "title", "text")))
    if not place:
        raise UserError(f"{path}: contains no passages; check that it is the right file")


load_questions = partial(reading.questions, reading.records, _question)

BENCHMARK = Benchmark(
    title="questions of its own",
    load_questions=load_questions,
    load_corpus=load_corpus,
    family="own",
    passages="",
)
