"""FanOutQA: questions that fan out over several Wikipedia pages; the answer may be a list or a mapping."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.benchmarks import reading
from notewriter.benchmarks.benchmark import Benchmark
from notewriter.errors import UserError
from notewriter.records import Passage, Question


def _question(record: dict[str, Any], place: str) -> Question:
    """The answer as text is the gold; as it is, it is in the metadata with the titles of the pages needed."""
    if "answer" not in record:
        raise UserError(f"{place}: has no 'answer'; the test set has none, use the dev set")
    return Question(
        id=reading.get(record, "id", str, place),
        question=reading.get(record, "question", str, place),
        answers=(_text(record["answer"]),),
        metadata={"answer": record["answer"], "pages": list(dict.fromkeys(_pages(record, place)))},
    )


def _text(answer: Any) -> str:
    if isinstance(answer, dict):
        return "; ".join(f"{key}: {_text(value)}" for key, value in answer.items())
    if isinstance(answer, list):
        return ", ".join(map(_text, answer))
    return {True: "yes", False: "no"}[answer] if isinstance(answer, bool) else str(answer)


def _pages(record: dict[str, Any], place: str) -> Iterator[str]:
    for part in reading.objects(record, "decomposition", place):
        if part.get("evidence"):
            yield reading.get(reading.get(part, "evidence", dict, place), "title", str, place)
        yield from _pages(part, place)


def load_corpus(path: Path) -> Iterator[Passage]:
    """FanOutQA comes without pages.

    Raises:
        UserError: always; says where the pages are.
    """
    raise UserError(
        f"{path}: FanOutQA's file holds no pages; fetch them with the package fanoutqa (wiki_content), "
        "write id, title, text a line and index that with --dataset jsonl"
    )


load_questions = partial(reading.questions, reading.array, _question)

BENCHMARK = Benchmark(
    title="FanOutQA",
    load_questions=load_questions,
    load_corpus=load_corpus,
    family="fanoutqa",
    answer_style="long",
    source="the PyPI package fanoutqa: fanout-final-dev.json",
    licence="cc-by-sa-4.0",
)
