"""Riddles: JSON Lines of `riddle`, `solution` and `source` (the text that contains the solution)."""

from functools import partial
from typing import Any

from notewriter import Passage, Question
from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    riddle = reading.get(record, "riddle", str, place)
    return Question(reading.question_id("riddles", riddle), riddle, (reading.get(record, "solution", str, place),))


def _passages(record: dict[str, Any], place: str) -> list[Passage]:
    text = reading.get(record, "source", str, place)
    return [Passage(reading.passage_id("", text), "", text)]


BENCHMARK = Benchmark(
    title="Riddles",
    load_questions=partial(reading.questions, reading.lines, _question),
    load_corpus=partial(reading.union, reading.lines, _passages),
    family="first_word",
    source=Release(
        name="riddles",
        page="example.org/riddles",
        licence="cc0-1.0",
        files=(File(address="https://example.org/riddles/riddles.jsonl", split="test"),),
    ),
    passages="its passages are in the public domain",
)
