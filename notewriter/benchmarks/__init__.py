"""Questions and corpora, in our own JSON Lines and in the benchmarks' own file formats, one file a benchmark.

The corpus of a benchmark is the union of the paragraphs that come with its questions, each of them once.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notewriter.benchmarks import (
    asqa,
    fanoutqa,
    frames,
    hotpotqa,
    iirc,
    multihoprag,
    musique,
    nq,
    own,
    reading,
    strategyqa,
    two_wiki_multihop_qa,
)
from notewriter.benchmarks.benchmark import Benchmark
from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.records import Passage, Question

BENCHMARKS: dict[str, Benchmark] = {
    "jsonl": own.BENCHMARK,
    "hotpotqa": hotpotqa.BENCHMARK,
    "2wikimultihopqa": two_wiki_multihop_qa.BENCHMARK,
    "musique": musique.BENCHMARK,
    "strategyqa": strategyqa.BENCHMARK,
    "asqa": asqa.BENCHMARK,
    "nq": nq.BENCHMARK,
    "iirc": iirc.BENCHMARK,
    "fanoutqa": fanoutqa.BENCHMARK,
    "frames": frames.BENCHMARK,
    "multihoprag": multihoprag.BENCHMARK,
}
"""Benchmarks by what `--dataset` calls them: `jsonl` is our own format, the others have files of their own."""


def load_questions(dataset: str, path: str | Path) -> list[Question]:
    """All questions of a file, in its order. `dataset` is a key of `BENCHMARKS`.

    Raises:
        UserError: an unknown dataset; a file that cannot be read or holds no question; a malformed
            record, a field that is missing or of the wrong type, an id that occurs twice.
    """
    questions: list[Question] = choose("dataset", dataset, BENCHMARKS).load_questions(Path(path))
    return questions


def load_corpus(dataset: str, path: str | Path) -> Iterator[Passage]:
    """The passages of a file, one by one; only their ids stay in memory. `dataset` is a key of `BENCHMARKS`.

    Raises:
        UserError: an unknown dataset; while passages are drawn, the errors of `load_questions`.
    """
    passages: Iterator[Passage] = choose("dataset", dataset, BENCHMARKS).load_corpus(Path(path))
    return passages


def with_ids(questions: list[Question], path: Path) -> list[Question]:
    """The questions whose ids a file names, one a line, in the order of the questions.

    Raises:
        UserError: the file cannot be read, or names an id that no question has.
    """
    with reading.open_text(path) as file:
        text = reading.read(file, -1, path)
    lines = {line.strip(): number for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
    known = {question.id for question in questions}
    for id, number in lines.items():
        if id not in known:
            raise UserError(f"{path}:{number}: no question has the id {id!r}; check the file and the dataset")
    return [question for question in questions if question.id in lines]


def with_metadata(questions: list[Question], where: dict[str, Any]) -> list[Question]:
    """The questions whose metadata say what `where` says of each of its keys, in their order.

    A value is the metadata's own, or one of several, in a list or in a text between strokes: FRAMES writes
    `Numerical reasoning | Multiple constraints`.

    Raises:
        UserError: no question has such metadata; tells what there is under the first key that fails.
    """
    for key, value in where.items():
        found = [each for each in questions if value in _values(each.metadata.get(key))]
        if not found:
            there = Counter(str(value) for each in questions for value in _values(each.metadata.get(key)))
            known = ", ".join(value for value, _ in there.most_common(10)) or "nothing"
            raise UserError(f"where: no question has {key}: {value!r} in its metadata; under {key!r} there is: {known}")
        questions = found
    return questions


def _values(value: Any) -> list[Any]:
    parts = value if isinstance(value, list) else [value]
    if isinstance(value, str) and "|" in value:
        parts = [value, *(part.strip() for part in value.split("|"))]
    return [part for part in parts if part is not None]


def select(questions: list[Question], limit: int | None = None, seed: int | None = None) -> list[Question]:
    """The first `limit` questions, or with a `seed` a random sample of as many, in the order of the file.

    All of them where `limit` is None or there are no more than that.

    Raises:
        UserError: a limit below 1.
    """
    if limit is None or limit >= len(questions):
        return list(questions)
    if limit < 1:
        raise UserError(f"limit: {limit} questions cannot be evaluated; ask for at least 1, or leave it out for all")
    if seed is None:
        return questions[:limit]
    return [questions[index] for index in sorted(random.Random(seed).sample(range(len(questions)), limit))]
