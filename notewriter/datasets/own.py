"""Our own JSON Lines: `questions.jsonl` and `corpus.jsonl`."""

import logging
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError, meant
from notewriter.ground.records import Passage, Question
from notewriter.ground.terminal import say_once
from notewriter.ground.typed import misfit, shown

logger = logging.getLogger(__name__)


class _Record(TypedDict):
    id: str
    question: str
    answers: list[str]
    supporting_ids: NotRequired[list[str]]
    supporting_facts: NotRequired[list[str]]
    metadata: NotRequired[dict[str, Any]]


def _question(record: dict[str, Any], place: str) -> Question:
    if problem := misfit(record, _Record):
        raise UserError(f'{place}: {problem}; write {{"id": "q1", "question": "...", "answers": ["..."]}}')
    if not record["question"].strip():
        raise UserError(f"{place}: 'question' is empty; write it, or remove the line")
    # A reader that says nothing would be right by a blank.
    answers = tuple(filter(str.strip, record["answers"]))
    if not answers:
        raise UserError(f"{place}: 'answers' is empty; give at least one gold answer")
    known: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in record.items() if name in READ
    }
    return Question(**known | {"answers": answers})


def load_corpus(path: Path) -> Iterator[Passage]:
    """Passages with `id`, `title` and `text`. The index that is built of them checks that ids are unique.

    Raises:
        UserError: a line is not a passage, or there is none.
    """
    place = ""
    for place, record in reading.records(path):
        yield Passage(*(reading.get(record, key, str, place) for key in ("id", "title", "text")))
    if not place:
        raise UserError(f"{path}: contains no passages; check that it is the right file")


READ = [each.name for each in fields(Question)]
"""The keys of a question that are read."""


def load_questions(path: Path) -> list[Question]:
    """The questions of a file; keys that are not read are named once.

    Raises:
        UserError: as `reading.questions`.
    """
    unread: set[str] = set()

    def question(record: dict[str, Any], place: str) -> Question:
        unread.update(record.keys() - set(READ))
        return _question(record, place)

    questions = reading.questions(reading.records, question, path)
    for name in sorted(unread):
        remedy = meant(name, READ, "put it under metadata to keep it")
        say_once(logger, f"{path}: the key {shown(name)} of questions is not read; {remedy}")
    return questions


BENCHMARK = Benchmark(
    title="questions of its own",
    load_questions=load_questions,
    load_corpus=load_corpus,
    family="own",
    passages="",
)
