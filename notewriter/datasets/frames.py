"""FRAMES: questions over several Wikipedia pages, as TSV with `Prompt` and `Answer` or as JSON Lines."""

import ast
import re
from functools import partial
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    """Rows have no ids; a digest of the question is used."""
    question = reading.get(record, "Prompt" if "Prompt" in record else "question", str, place)
    # The last cell may contain several addresses, followed by explanations.
    links = [
        link.split()[0].rstrip(",;")
        for cell in _cells(record, place)
        for link in re.split(r"[,;\s]+(?=https?://)", cell)
        if link.strip()
    ]
    return Question(
        id=str(record.get("id") or reading.question_id("frames", question)),
        question=question,
        answers=(reading.get(record, "Answer" if "Answer" in record else "answer", str, place),),
        metadata={"pages": links, "type": record.get("reasoning_types") or ""},
    )


def _cells(record: dict[str, Any], place: str) -> tuple[str, ...]:
    """The texts with addresses: under `wikipedia_link_1` and so on, or else in `wiki_links`, a list or one as text."""
    keys = [key for key, value in record.items() if key.startswith("wikipedia_link") and value]
    links = record.get("wiki_links")
    if keys or not links:
        return tuple(reading.get(record, key, str, place) for key in keys)
    if isinstance(links, str):
        try:
            links = ast.literal_eval(links)
        except (ValueError, SyntaxError, RecursionError) as error:
            raise UserError(f"{place}: 'wiki_links' is no list ({error}); use the original file") from error
    return reading.strings({"wiki_links": links}, "wiki_links", place)


RELEASE = Release(
    name="frames",
    page="huggingface.co/datasets/google/frames-benchmark",
    licence="apache-2.0",
    files=(
        File(
            address="hf://datasets/google/frames-benchmark@58d9fb6330f3ab1316d1eca12e5e8ef23dcc22ef/test.tsv",
            split="test",
            rows=824,
            about=485_000,
        ),
    ),
)

BENCHMARK = Benchmark(
    title="FRAMES",
    load_questions=partial(reading.questions, reading.records, _question, numbered=True),
    family="nq",
    source=RELEASE,
)
