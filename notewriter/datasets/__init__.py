"""Questions and corpora in our own JSON Lines and in the benchmarks' own formats, one module per benchmark.

The corpus of a benchmark is the set of distinct paragraphs that come with its questions.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notewriter.datasets import (
    asqa,
    bamboogle,
    fanoutqa,
    flashrag,
    frames,
    hotpotqa,
    iirc,
    multihoprag,
    musique,
    nq,
    own,
    popqa,
    reading,
    strategyqa,
    triviaqa,
    two_wiki_multihop_qa,
)
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.plugins import Plugins
from notewriter.ground.records import Passage, Question
from notewriter.ground.releases import FETCHED

BENCHMARKS: Plugins[Benchmark] = Plugins(
    "datasets",
    Benchmark,
    {
        "jsonl": own.BENCHMARK,
        "hotpotqa": hotpotqa.BENCHMARK,
        "2wikimultihopqa": two_wiki_multihop_qa.BENCHMARK,
        "musique": musique.BENCHMARK,
        "strategyqa": strategyqa.BENCHMARK,
        "asqa": asqa.BENCHMARK,
        "nq": nq.BENCHMARK,
        "iirc": iirc.BENCHMARK,
        "fanoutqa": fanoutqa.BENCHMARK,
        "frames": frames.BENCHMARK,
        "multihoprag": multihoprag.BENCHMARK,
        "triviaqa": triviaqa.BENCHMARK,
        "popqa": popqa.BENCHMARK,
        "bamboogle": bamboogle.BENCHMARK,
    },
)
"""Benchmarks by their `--dataset` name; `jsonl` is our own format."""


def load_questions(dataset: str, path: str | Path) -> list[Question]:
    """All questions of a file, in file order. `dataset` is a key of `BENCHMARKS`.

    Files in FlashRAG's form (`golden_answers`) are read for any benchmark.

    Raises:
        UserError: the dataset is unknown, the file cannot be read or contains no questions, a record is malformed,
            a field is missing or has the wrong type, or an id occurs twice.
    """
    benchmark = choose("dataset", dataset, BENCHMARKS)
    reading.warn_of_part(Path(path))
    load = flashrag.load_questions if flashrag.is_flashrag(Path(path)) else benchmark.load_questions
    return load(Path(path))


def load_corpus(dataset: str, path: str | Path) -> Iterator[Passage]:
    """Stream the passages of a file; only their ids are kept in memory. `dataset` is a key of `BENCHMARKS`.

    Raises:
        UserError: the dataset is unknown or has no passages; during iteration, as `load_questions`.
    """
    benchmark = choose("dataset", dataset, BENCHMARKS)
    if benchmark.load_corpus is None:
        raise UserError(
            f"{path}: {benchmark.title} contains no passages; make its corpus with `notewriter corpus` "
            "(docs/corpora.md), and index that with --dataset jsonl"
        )
    reading.warn_of_part(Path(path))
    return benchmark.load_corpus(Path(path))


def question_file(dataset: str, path: str, split: str | None) -> str:
    """The path of a question file: the one that is given, or else the fetched one of a split of the dataset.

    Raises:
        UserError: the dataset is unknown or published nowhere, has no such split, or was not fetched.
    """
    if path != FETCHED:
        if split:
            raise UserError(f"split: chooses among fetched files; leave out --split or --path {path}")
        return path
    release = choose("dataset", dataset, BENCHMARKS).source
    if release is None:
        raise UserError(f"path: {dataset} is published nowhere; add --path with its file")
    return str(release.path(split, "dataset", dataset))


def with_metadata(questions: list[Question], where: dict[str, Any]) -> list[Question]:
    """The questions whose metadata match every key of `where`, in order.

    Metadata may have several values, in a list or separated by `|`: FRAMES writes
    `Numerical reasoning | Multiple constraints`.

    Raises:
        UserError: no question matches; lists the values of the first key that fails.
    """
    for key, value in where.items():
        matching = [each for each in questions if value in _values(each.metadata.get(key))]
        if not matching:
            there = Counter(str(value) for each in questions for value in _values(each.metadata.get(key)))
            values = ", ".join(value for value, _ in there.most_common(10)) or "none"
            raise UserError(f"where: no question has {key}: {value!r} in its metadata; its values are: {values}")
        questions = matching
    return questions


def _values(value: Any) -> list[Any]:
    parts = value if isinstance(value, list) else [value]
    if isinstance(value, str) and "|" in value:
        parts = [value, *(part.strip() for part in value.split("|"))]
    return [part for part in parts if part is not None]


def select(questions: list[Question], limit: int | None = None, seed: int | None = None) -> list[Question]:
    """The first `limit` questions, or with a `seed` a random sample of that size, in file order.

    All questions if `limit` is None or not smaller than their number.

    Raises:
        UserError: the limit is below 1.
    """
    if limit is None or limit >= len(questions):
        return list(questions)
    if limit < 1:
        raise UserError(f"limit: {limit} questions cannot be evaluated; give at least 1 or leave it out for all")
    if seed is None:
        return questions[:limit]
    return [questions[index] for index in sorted(random.Random(seed).sample(range(len(questions)), limit))]
