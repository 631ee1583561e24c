"""Questions and corpora, in our own JSON Lines and in the benchmarks' own file formats, one module a format.

The corpus of a benchmark is the union of the paragraphs that come with its questions, each of them once.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from notewriter.config import choose
from notewriter.datasets import (
    asqa,
    fanoutqa,
    frames,
    hotpotqa,
    iirc,
    multihoprag,
    musique,
    nq,
    own,
    reading,
    strategyqa,
)
from notewriter.errors import UserError
from notewriter.records import Passage, Question


class Dataset(NamedTuple):
    """A benchmark: how its files are read, whose rules score it, how it is answered, where it is, its licence."""

    load_questions: Callable[[Path], list[Question]]
    load_corpus: Callable[[Path], Iterator[Passage]]
    family: str
    answer_style: str = "short"
    source: str = ""
    licence: str = ""


def load_questions(dataset: str, path: str | Path) -> list[Question]:
    """All questions of a file, in its order. `dataset` is a key of `DATASETS`.

    Raises:
        UserError: an unknown dataset; a file that cannot be read or holds no question; a malformed
            record, a field that is missing or of the wrong type, an id that occurs twice.
    """
    questions: list[Question] = choose("dataset", dataset, DATASETS).load_questions(Path(path))
    return questions


def load_corpus(dataset: str, path: str | Path) -> Iterator[Passage]:
    """The passages of a file, one by one; only their ids stay in memory. `dataset` is a key of `DATASETS`.

    Raises:
        UserError: an unknown dataset; while passages are drawn, the errors of `load_questions`.
    """
    passages: Iterator[Passage] = choose("dataset", dataset, DATASETS).load_corpus(Path(path))
    return passages


def with_ids(questions: list[Question], path: Path) -> list[Question]:
    """The questions whose ids a file names, one a line, in the order of the questions.

    Raises:
        UserError: the file cannot be read, or names an id that no question has.
    """
    with reading.open_text(path) as file:
        lines = {line.strip(): number for number, line in enumerate(file, start=1) if line.strip()}
    known = {question.id for question in questions}
    for id, number in lines.items():
        if id not in known:
            raise UserError(f"{path}:{number}: no question has the id {id!r}; check the file and the dataset")
    return [question for question in questions if question.id in lines]


def with_metadata(questions: list[Question], where: dict[str, Any]) -> list[Question]:
    """The questions whose metadata say what `where` says of each of its keys, in their order.

    A value is the metadata's own, or one of several, in a list or in a text between strokes: FRAMES writes
    `Numerical reasoning | Multiple constraints`.

    Raises:
        UserError: no question has such metadata; tells what there is under the first key that fails.
    """
    for key, value in where.items():
        found = [each for each in questions if value in _values(each.metadata.get(key))]
        if not found:
            there = Counter(str(value) for each in questions for value in _values(each.metadata.get(key)))
            known = ", ".join(value for value, _ in there.most_common(10)) or "nothing"
            raise UserError(f"where: no question has {key}: {value!r} in its metadata; under {key!r} there is: {known}")
        questions = found
    return questions


def _values(value: Any) -> list[Any]:
    parts = value if isinstance(value, list) else [value]
    if isinstance(value, str) and "|" in value:
        parts = [value, *(part.strip() for part in value.split("|"))]
    return [part for part in parts if part is not None]


def select(questions: list[Question], limit: int | None = None, seed: int | None = None) -> list[Question]:
    """The first `limit` questions, or with a `seed` a random sample of as many, in the order of the file.

    All of them where `limit` is None or there are no more than that.

    Raises:
        UserError: a limit below 1.
    """
    if limit is None or limit >= len(questions):
        return list(questions)
    if limit < 1:
        raise UserError(f"limit: {limit} questions cannot be evaluated; ask for at least 1, or leave it out for all")
    if seed is None:
        return questions[:limit]
    return [questions[index] for index in sorted(random.Random(seed).sample(range(len(questions)), limit))]


DATASETS = {
    "jsonl": Dataset(own.load_questions, own.load_corpus, "hotpotqa"),
    "hotpotqa": Dataset(
        hotpotqa.load_questions,
        hotpotqa.load_corpus,
        "hotpotqa",
        source="hotpotqa.github.io: hotpot_dev_distractor_v1.json, hotpot_train_v1.1.json",
        licence="CC BY-SA 4.0",
    ),
    "2wikimultihopqa": Dataset(
        hotpotqa.load_with_aliases,
        hotpotqa.load_corpus,
        "2wikimultihopqa",
        source="github.com/Alab-NII/2wikimultihop: dev.json, train.json, with id_aliases.json beside them",
        licence="Apache-2.0",
    ),
    "musique": Dataset(
        musique.load_questions,
        musique.load_corpus,
        "musique",
        source="github.com/StonyBrookNLP/musique: musique_ans_v1.0_dev.jsonl, musique_ans_v1.0_train.jsonl",
        licence="CC BY 4.0",
    ),
    "strategyqa": Dataset(
        strategyqa.load_questions,
        strategyqa.load_corpus,
        "strategyqa",
        "yes_no",
        source="allenai.org/data/strategyqa: strategyqa_train.json, strategyqa_train_paragraphs.json",
        licence="MIT",
    ),
    "asqa": Dataset(
        asqa.load_questions,
        asqa.load_corpus,
        "asqa",
        "long",
        source="github.com/google-research/language (asqa): ASQA.json, or ALCE's asqa_eval_*.json",
        licence="Apache-2.0",
    ),
    "nq": Dataset(
        nq.load_questions,
        nq.load_corpus,
        "nq",
        source="github.com/google-research-datasets/natural-questions (nq_open): NQ-open.dev.jsonl; "
        "corpus: DPR's psgs_w100.tsv",
        licence="CC BY-SA 3.0",
    ),
    "iirc": Dataset(
        iirc.load_questions,
        iirc.load_corpus,
        "drop",
        source="allenai.org/data/iirc: dev.json; corpora: context_articles.json, and dev.json's own articles",
        licence="CC BY 4.0",
    ),
    "fanoutqa": Dataset(
        fanoutqa.load_questions,
        fanoutqa.load_corpus,
        "fanoutqa",
        "long",
        source="the PyPI package fanoutqa: fanout-final-dev.json",
        licence="CC BY-SA 4.0",
    ),
    "frames": Dataset(
        frames.load_questions,
        frames.load_corpus,
        "nq",
        source="huggingface.co/datasets/google/frames-benchmark: test.tsv",
        licence="Apache-2.0",
    ),
    "multihoprag": Dataset(
        multihoprag.load_questions,
        multihoprag.load_corpus,
        "multihoprag",
        source="huggingface.co/datasets/yixuantt/MultiHopRAG: MultiHopRAG.json; corpus: corpus.json",
        licence="ODC-BY 1.0",
    ),
}
"""File formats by name: `jsonl` is our own, the others are the benchmarks' original files."""
