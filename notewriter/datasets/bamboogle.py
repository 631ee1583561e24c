"""Bamboogle: 125 two-hop questions in a table of `Question` and `Answer` (Press et al., 2023)."""

from functools import partial
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.records import Question
from notewriter.ground.releases import Release


def _question(record: dict[str, Any], place: str) -> Question:
    """Rows have no ids; a digest of the question is used."""
    question = reading.get(record, "Question", str, place).strip()
    answer = reading.get(record, "Answer", str, place).strip()
    return Question(reading.question_id("bamboogle", question), question, (answer,))


BENCHMARK = Benchmark(
    title="Bamboogle",
    load_questions=partial(reading.questions, reading.table, _question, numbered=True),
    family="nq",
    source=Release(
        name="bamboogle",
        page="github.com/ofirpress/self-ask",
        licence="mit",
        files=(),
        note="the linked table as CSV, or FlashRAG's test.jsonl; corpus: `notewriter corpus --source dpr`",
    ),
)
