"""MultiHop-RAG: questions over news articles with evidence sentences; the articles are a second file."""

from functools import partial
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.records import Passage, Question
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    """Questions have no ids; a digest of the question is used."""
    question = reading.get(record, "query", str, place)
    evidence = reading.objects(record, "evidence_list", place)
    return Question(
        id=reading.question_id("multihoprag", question),
        question=question,
        answers=(reading.get(record, "answer", str, place),),
        supporting_facts=reading.distinct(reading.get(part, "fact", str, place) for part in evidence),
        metadata={"type": record.get("question_type", ""), "hops": len(evidence)},
    )


def _passages(record: dict[str, Any], place: str) -> list[Passage]:
    """The paragraphs of an article's `body`."""
    return reading.paragraphs(reading.get(record, "title", str, place), reading.get(record, "body", str, place))


_REPOSITORY = "hf://datasets/yixuantt/MultiHopRAG@71ac0d0bd1f951d2d6b70311f7d2ae404e1ffa82"

RELEASE = Release(
    name="multihoprag",
    page="huggingface.co/datasets/yixuantt/MultiHopRAG",
    licence="odc-by",
    files=(
        File(address=f"{_REPOSITORY}/MultiHopRAG.json", split="test", rows=2556, about=5_170_000),
        File(address=f"{_REPOSITORY}/corpus.json", split="corpus", about=6_790_000),
    ),
)

BENCHMARK = Benchmark(
    title="MultiHop-RAG",
    load_questions=partial(reading.questions, reading.records, _question, numbered=True),
    load_corpus=partial(reading.union, reading.records, _passages),
    family="multihoprag",
    source=RELEASE,
    passages="its passages are news articles of their publishers",
)
