"""NQ-open: JSON Lines of `question` and `answer` (a list), over Wikipedia of December 2018."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    """NQ-open has no ids; a digest of the question is used. "Lost in the Middle" writes `answers`."""
    question = reading.get(record, "question", str, place)
    key = "answers" if "answers" in record else "answer"
    answers = reading.strings(record, key, place)
    if not answers:
        raise UserError(f"{place}: {key!r} is empty; use the original file")
    return Question(reading.question_id("nq", question), question, reading.distinct(answers))


def load_contexts(path: Path) -> Iterator[tuple[str, list[Passage]]]:
    """The documents beside each question in the files of "Lost in the Middle" (Liu et al. 2024), unpacked."""
    repeats: Counter[str] = Counter()
    for place, record in reading.records(path):
        documents = (
            (reading.get(each, "title", str, place), reading.get(each, "text", str, place))
            for each in reading.objects(record, "ctxs", place)
        )
        passages = [Passage(reading.passage_id(title, text), title, text) for title, text in documents]
        id = reading.question_id("nq", reading.get(record, "question", str, place))
        yield reading.unrepeated(id, repeats), passages


_QUESTIONS = "https://raw.githubusercontent.com/google-research-datasets/natural-questions/master/nq_open"

RELEASE = Release(
    name="nq",
    page="github.com/google-research-datasets/natural-questions (nq_open)",
    licence="cc-by-sa-3.0",
    files=(
        File(
            address=f"{_QUESTIONS}/NQ-open.dev.jsonl",
            split="dev",
            rows=3610,
            size=391_316,
            sha256="f15567f38099f3615f5b8a685c0aef449c11ad90d3da3735e8d1b98115b40616",
        ),
        File(address=f"{_QUESTIONS}/NQ-open.train.jsonl", split="train", rows=87_925, unverified="size and SHA-256"),
        File(
            address="https://raw.githubusercontent.com/nelson-liu/lost-in-the-middle/"
            "29b8a6d042ce29abccee3db1a73171a107d7e6af/qa_data/20_total_documents/"
            "nq-open-20_total_documents_gold_at_0.jsonl.gz",
            name="nq-open-20_total_documents_gold_at_0.jsonl",
            split="contexts",
            rows=2655,
            size=15_151_873,
            sha256="69a8dd87a45f07fb3ed9b804917a89db975cd6e488682fc838edca029cc3881f",
        ),
    ),
    note="corpus: `notewriter corpus --source dpr`",
)

BENCHMARK = Benchmark(
    title="Natural Questions",
    load_questions=partial(reading.questions, reading.records, _question, numbered=True),
    load_contexts=load_contexts,
    family="nq",
    source=RELEASE,
)
