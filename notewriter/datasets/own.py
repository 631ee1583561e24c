"""Our own JSON Lines: `questions.jsonl` and `corpus.jsonl`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import hash64

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = Lazy("numpy")


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
    """Passages with a unique `id`, `title` and `text`; takes 16 bytes of memory for each.

    Raises:
        UserError: a line is not a passage, there is none, or, at the end, an id occurs twice.
    """
    lines, hashes = array("Q"), array("Q")
    for line, record in jsonl.read(path):
        passage = Passage(*(reading.get(record, key, str, f"{path}:{line}") for key in ("id", "title", "text")))
        lines.append(line)
        hashes.append(hash64(passage.id))
        yield passage
    if not lines:
        raise UserError(f"{path}: contains no passages; check that it is the right file")
    _check_ids(path, np.frombuffer(lines, np.uint64), np.frombuffer(hashes, np.uint64))


def _check_ids(path: Path, lines: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
    order = np.argsort(hashes, kind="stable")
    equal = hashes[order][1:] == hashes[order][:-1]
    suspects = set(lines[np.union1d(order[1:][equal], order[:-1][equal])].tolist())
    firsts = dict[str, int]()
    for line, record in jsonl.read(path) if suspects else ():
        if line in suspects and (first := firsts.setdefault(record["id"], line)) != line:
            raise UserError(f"{path}:{line}: has the same id {record['id']!r} as {path}:{first}; make ids unique")


load_questions = partial(reading.questions, reading.lines, _question)

BENCHMARK = Benchmark(
    title="questions of its own",
    load_questions=load_questions,
    load_corpus=load_corpus,
    family="hotpotqa",
    passages="",
)
