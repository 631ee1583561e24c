"""MuSiQue: JSON Lines; each question has `paragraphs` and a `question_decomposition` by hop."""

import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.records import Passage, Question
from notewriter.ground.releases import File, Release

logger = logging.getLogger(__name__)

SENTENCE_END = re.compile(r"(?<=[.!?])(?<![ (][A-Z]\.)\s+")
"""White space after a sentence, but not after an initial."""


def _answerable(path: Path, *, warns: bool = True) -> reading.Records:
    """The records of musique_ans, on which the papers evaluate (Trivedi et al., 2022, section 5).

    musique_full contains each question twice with the same id, the second time without a paragraph it needs.
    """
    left_out = 0
    for place, record in reading.records(path):
        if record.get("answerable") is False:
            left_out += 1
        else:
            yield place, record
    if left_out and warns:
        logger.warning("%s: %d unanswerable questions are left out, as in musique_ans", path, left_out)


def _question(record: dict[str, Any], place: str) -> Question:
    """Supporting passages are in hop order.

    MuSiQue marks paragraphs, not sentences. The facts of a hop are the sentences of its paragraph that
    contain the hop's answer, ignoring case, or else the whole paragraph.
    """
    paragraphs = {}
    supporting = []
    for index, passage, is_supporting in _paragraphs(record, place):
        paragraphs[index] = passage
        if is_supporting:
            supporting.append(passage.id)
    ids, facts, decomposition = [], [], []
    for hop in reading.objects(record, "question_decomposition", place):
        answer = reading.get(hop, "answer", str, place)
        decomposition.append({"question": reading.get(hop, "question", str, place), "answer": answer})
        support = hop.get("paragraph_support_idx")
        paragraph = (
            paragraphs.get(reading.get(hop, "paragraph_support_idx", int, place)) if support is not None else None
        )
        if paragraph:
            sentences = SENTENCE_END.split(paragraph.text)
            ids.append(paragraph.id)
            facts += [s for s in sentences if answer.lower() in s.lower()] or [paragraph.text]
    return Question(
        id=reading.get(record, "id", str, place),
        question=reading.get(record, "question", str, place),
        answers=reading.distinct(
            [reading.get(record, "answer", str, place), *reading.strings(record, "answer_aliases", place)]
        ),
        supporting_ids=reading.distinct(ids + supporting),
        supporting_facts=reading.distinct(facts),
        metadata={
            "hops": len(decomposition),
            "decomposition": decomposition,
            **({"answerable": record["answerable"]} if "answerable" in record else {}),
        },
    )


def passages(record: dict[str, Any], place: str) -> list[Passage]:
    """The paragraphs beside a question."""
    return [passage for _, passage, _ in _paragraphs(record, place)]


def _paragraphs(record: dict[str, Any], place: str) -> Iterator[tuple[int, Passage, bool]]:
    """Each paragraph with its `idx`, by which hops refer to it: not every copy has them in that order."""
    for position, paragraph in enumerate(reading.objects(record, "paragraphs", place)):
        title, text = (
            reading.get(paragraph, "title", str, place),
            reading.get(paragraph, "paragraph_text", str, place).strip(),
        )
        index = reading.get(paragraph, "idx", int, place) if "idx" in paragraph else position
        yield index, Passage(reading.passage_id(title, text), title, text), bool(paragraph.get("is_supporting"))


COPY = "hf://datasets/voidful/MuSiQue@a7d9f9adf6191604fc67cde318ee1a86fcf7babc"
"""A copy of the authors' files; of the development questions, two other copies have the same SHA-256."""

RELEASE = Release(
    name="musique",
    page="github.com/StonyBrookNLP/musique",
    licence="cc-by-4.0",
    files=(
        File(
            address=f"{COPY}/musique_ans_v1.0_dev.jsonl",
            split="dev",
            rows=2417,
            size=30_439_728,
            sha256="15fa63794d18a94ce12411aca6e2327e65b6e83b0b1490efab3f1962e48abf3b",
        ),
        File(address=f"{COPY}/musique_ans_v1.0_train.jsonl", split="train", rows=19_938, about=241_000_000),
    ),
    note="the authors' musique_v1.0.zip is on Google Drive, so the files come from a copy on the Hub",
)

BENCHMARK = Benchmark(
    title="MuSiQue",
    load_questions=partial(reading.questions, _answerable, _question),
    load_corpus=partial(reading.union, reading.records, passages),
    load_contexts=partial(reading.contexts, partial(_answerable, warns=False), passages, "id"),
    family="musique",
    source=RELEASE,
)
