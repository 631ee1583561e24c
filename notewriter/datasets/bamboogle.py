"""Bamboogle: 125 two-hop questions in a table of `Question` and `Answer` (Press et al., 2023)."""

from functools import partial
from typing import Any

from notewriter.datasets import flashrag, reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.records import Question
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    """Rows have no ids; a digest of the question is used."""
    question = reading.get(record, "Question", str, place).strip()
    answer = reading.get(record, "Answer", str, place).strip()
    return Question(reading.question_id("bamboogle", question), question, (answer,))


RELEASE = Release(
    name="bamboogle",
    page="github.com/ofirpress/self-ask",
    licence="mit",
    files=(
        File(
            address=f"{flashrag.REPOSITORY}/bamboogle/test.jsonl",
            split="test",
            rows=125,
            about=17_000,
            sha256="c9703dae6bb1ceb9e2df77be45da28cb12aa040d2f471507890a461296968f3f",
        ),
    ),
    note="FlashRAG's file; the authors link to a table; corpus: `notewriter corpus --source dpr`",
)

BENCHMARK = Benchmark(
    title="Bamboogle",
    load_questions=partial(reading.questions, reading.records, _question, numbered=True),
    family="nq",
    source=RELEASE,
)
