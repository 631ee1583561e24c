"""PopQA: a TSV of questions about Wikidata entities, most of them rare (Mallen et al., 2023)."""

from functools import partial
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    """The metadata have the relation and the monthly page views of subject and object (`s_pop`, `o_pop`)."""
    answers = reading.tuples(record, "possible_answers", (), list[str], place)
    if not answers:
        raise UserError(f"{place}: 'possible_answers' is empty; use the original file")
    # Numbers in Parquet, texts in the table.
    views = {key: str(record.get(key)) for key in ("s_pop", "o_pop")}
    return Question(
        id=reading.identifier(record, "id", place),
        question=reading.get(record, "question", str, place),
        answers=reading.distinct(answers),
        metadata={"prop": reading.get(record, "prop", str, place)}
        | {key: int(value) for key, value in views.items() if value.isdecimal()},
    )


RELEASE = Release(
    name="popqa",
    page="github.com/AlexTMallen/adaptive-retrieval",
    licence="mit",
    files=(
        File(
            address="https://raw.githubusercontent.com/AlexTMallen/adaptive-retrieval/main/data/popQA.tsv",
            split="test",
            rows=14_267,
            sha256="9a5227f41bff0e4c331d4a774d946b12f95307892b58f860a9606ef356e6089b",
        ),
    ),
    note="or FlashRAG's test.jsonl; corpus: `notewriter corpus --source dpr`",
)

BENCHMARK = Benchmark(
    title="PopQA",
    load_questions=partial(reading.questions, reading.records, _question),
    family="popqa",
    source=RELEASE,
)
