"""Our own JSON Lines: `questions.jsonl` and `corpus.jsonl`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter import jsonl
from notewriter.benchmarks import reading
from notewriter.benchmarks.benchmark import Benchmark
from notewriter.errors import UserError
from notewriter.records import Passage, Question


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
    """Passages with a unique `id`, `title` and `text`."""
    seen = dict[str, int]()
    for line, record in jsonl.read(path):
        place = f"{path}:{line}"
        passage = Passage(*(reading.get(record, key, str, place) for key in ("id", "title", "text")))
        if passage.id in seen:
            first = f"{path}:{seen[passage.id]}"
            raise UserError(f"{place}: has the same id {passage.id!r} as {first}; make ids unique")
        seen[passage.id] = line
        yield passage
    if not seen:
        raise UserError(f"{path}: contains no passages; check that it is the right file")


load_questions = partial(reading.questions, reading.lines, _question)

BENCHMARK = Benchmark(
    title="questions of its own",
    load_questions=load_questions,
    load_corpus=load_corpus,
    family="hotpotqa",
    passages="",
)
