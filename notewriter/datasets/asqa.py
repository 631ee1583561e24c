"""ASQA: ambiguous questions, answered by a paragraph that covers every reading.

Files are the original `ASQA.json` (its dev split, or its only one), ALCE's list of 948 questions or the Hub's rows.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.releases import File, Release


def _records(path: Path) -> reading.Records:
    return _split(path) if reading.is_object(path) else reading.records(path)


def _split(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    splits = dict(reading.mapping(path))
    if "dev" not in splits and len(splits) != 1:
        raise UserError(f"{path}: has no split 'dev'; use ASQA.json as it was released")
    name = "dev" if "dev" in splits else next(iter(splits))
    for id, record in reading.get(splits, name, dict, str(path)).items():
        place = f"{path}: question {id}"
        if not isinstance(record, dict):
            raise UserError(f"{place}: is a {type(record).__name__}, not an object; use the original file")
        yield place, {"sample_id": id} | record


def _question(record: dict[str, Any], place: str) -> Question:
    """Gold answers are the short answers of all readings; the metadata groups them by reading."""
    readings = [reading.strings(pair, "short_answers", place) for pair in reading.objects(record, "qa_pairs", place)]
    key = "ambiguous_question" if "ambiguous_question" in record else "question"
    if not readings or not all(readings):
        raise UserError(f"{place}: has a reading without short answers; use the original file")
    return Question(
        id=reading.get(record, "sample_id", str, place),
        question=reading.get(record, key, str, place),
        answers=reading.distinct(answer for answers in readings for answer in answers),
        metadata={"short_answers": [list(answers) for answers in readings]},
    )


RELEASE = Release(
    name="asqa",
    page="github.com/google-research/language (asqa)",
    licence="apache-2.0",
    files=(
        File(
            address="hf://datasets/princeton-nlp/ALCE-data@334fa2e7dd32040c3fef931a123c4be1a81e91a0/ALCE-data.tar",
            member="asqa_eval_gtr_top100.json",
            split="dev",
            rows=948,
            about=451_000_000,
            sha256="eda837bf659a91b3648dc6e7ab6b17197664d93593857e8fdf3800b6aa6a98f0",
        ),
    ),
    note="ALCE's list, as DeepNote has it; the authors' ASQA.json is in gs://gresearch/ASQA",
)

BENCHMARK = Benchmark(
    title="ASQA",
    load_questions=partial(reading.questions, _records, _question),
    family="asqa",
    answer_style="long",
    source=RELEASE,
)
