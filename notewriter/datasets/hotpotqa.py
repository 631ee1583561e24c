"""HotpotQA: each question has `context`, a list of [title, sentences]; on the Hub its columns are objects of lists."""

from functools import partial
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.records import Passage, Question
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    """A supporting fact past its paragraph's last sentence, as some of 2WikiMultihopQA are, names the paragraph alone.

    For a supporting paragraph that is not in the context, as in HotpotQA's fullwiki file, the title serves as the id.
    `answer_id` is 2WikiMultihopQA's key for the answer's aliases.
    """
    # Of two paragraphs with the same title, the first is meant.
    paragraphs = {title: (passage_id, sentences) for passage_id, title, sentences in reversed(_context(record, place))}
    ids, facts = [], []
    for title, index in reading.tuples(record, "supporting_facts", ("title", "sent_id"), list[tuple[str, int]], place):
        if title not in paragraphs:
            ids.append(title)
            continue
        passage_id, sentences = paragraphs[title]
        ids.append(passage_id)
        if 0 <= index < len(sentences) and sentences[index]:
            facts.append(sentences[index])
    return Question(
        id=reading.identifier(record, "_id", place),
        question=reading.get(record, "question", str, place),
        answers=(reading.get(record, "answer", str, place),),
        supporting_ids=reading.distinct(ids),
        supporting_facts=reading.distinct(facts),
        metadata={key: record[key] for key in ("type", "level", "answer_id") if record.get(key) is not None},
    )


def passages(record: dict[str, Any], place: str) -> list[Passage]:
    """The paragraphs beside a question."""
    return [Passage(id, title, _join(sentences)) for id, title, sentences in _context(record, place)]


def _context(record: dict[str, Any], place: str) -> list[tuple[str, str, list[str]]]:
    """The id, title and stripped sentences of each paragraph; sentence indices are unchanged."""
    paragraphs = []
    for title, sentences in reading.tuples(
        record, "context", ("title", "sentences"), list[tuple[str, list[str]]], place
    ):
        stripped = [sentence.strip() for sentence in sentences]
        paragraphs.append((reading.passage_id(title, _join(stripped)), title, stripped))
    return paragraphs


def _join(sentences: list[str]) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


load_questions = partial(reading.questions, reading.records, _question)
load_corpus = partial(reading.union, reading.records, passages)
load_contexts = partial(reading.contexts, reading.records, passages, "_id")

RELEASE = Release(
    name="hotpotqa",
    page="hotpotqa.github.io",
    licence="cc-by-sa-4.0",
    files=(
        File(
            address="http://curtis.ml.cmu.edu/datasets/hotpot/hotpot_dev_distractor_v1.json",
            split="dev",
            rows=7405,
            size=46_320_117,
            # It comes over plain HTTP: the SHA-256 that other projects have recorded says that it is the published one.
            sha256="4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
        ),
        File(
            address="http://curtis.ml.cmu.edu/datasets/hotpot/hotpot_train_v1.1.json",
            split="train",
            rows=90_447,
            size=566_426_227,
            sha256="26650cf50234ef5fb2e664ed70bbecdfd87815e6bffc257e068efea5cf7cd316",
        ),
    ),
)

BENCHMARK = Benchmark(
    title="HotpotQA",
    load_questions=load_questions,
    load_corpus=load_corpus,
    load_contexts=load_contexts,
    family="hotpotqa",
    source=RELEASE,
)
