"""IIRC: questions about an article that need information from the articles it links to."""

import functools
import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.records import Passage, Question
from notewriter.ground.releases import File, Release

ARTICLES = "context_articles.json"
"""The file of the articles that questions link to."""

_TAG = re.compile(r"<[^>]*>")


def _records(path: Path) -> reading.Records:
    """The answerable questions, article by article, as in IRCoT's evaluation."""
    for place, article in reading.records(path):
        for record in reading.objects(article, "questions", place):
            if reading.get(record, "answer", dict, place).get("type") != "none":
                yield place, record | {"title": reading.get(article, "title", str, place)}


def _id(record: dict[str, Any], title: str, place: str) -> str:
    question = reading.get(record, "question", str, place)
    return str(record.get("qid") or reading.question_id("iirc", f"{title} {question}"))


def _question(record: dict[str, Any], place: str) -> Question:
    """The gold answer excludes the unit of a number, as in IRCoT's evaluation.

    The metadata have the unit, and the spans of an answer, which the metric family `drop` aligns.
    """
    answer, question = record["answer"], reading.get(record, "question", str, place)
    spans = _spans(answer, place)
    facts = [reading.get(part, "text", str, place) for part in reading.objects(record, "context", place)]
    about = {
        "type": reading.get(answer, "type", str, place),
        "title": record["title"],
        "unit": answer.get("answer_unit"),
        "spans": spans,
    }
    return Question(
        id=_id(record, record["title"], place),
        question=question,
        answers=(", ".join(spans) or str(answer.get("answer_value", "")).strip(),),
        supporting_facts=reading.distinct(fact.strip() for fact in facts if fact.strip()),
        metadata={key: value for key, value in about.items() if value},
    )


def _spans(answer: dict[str, Any], place: str) -> list[str]:
    """The spans of an answer; empty for numbers, yes and no."""
    if answer.get("type") != "span":
        return []
    return [reading.get(span, "text", str, place).strip() for span in reading.objects(answer, "answer_spans", place)]


def load_corpus(path: Path) -> Iterator[Passage]:
    """`context_articles.json`: title -> text with HTML links; passages are its distinct paragraphs.

    The question file is also accepted, as the corpus of the questions' own articles.
    """
    return reading.union(reading.records if reading.is_list(path) else articles, passages, path)


def articles(path: Path) -> reading.Records:
    """The articles of `context_articles.json`, read into memory."""
    return ((f"{path}: article {title}", {"title": title, "text": text}) for title, text in reading.mapping(path))


def passages(record: dict[str, Any], place: str) -> list[Passage]:
    """The paragraphs of an article, without HTML."""
    text = html.unescape(_TAG.sub("", reading.get(record, "text", str, place)))
    return reading.paragraphs(reading.get(record, "title", str, place), text)


def load_contexts(path: Path) -> Iterator[tuple[str, list[Passage]]]:
    """The paragraphs of each answerable question, with the linked articles in `context_articles.json` beside the file.

    They are those of its own article, the ones of linked articles that contain its evidence, and, as distractors, the
    first of every other article that its own one links to. (IRCoT takes a random paragraph of each.)
    """
    articles = {title.lower(): text for title, text in reading.mapping(path.with_name(ARTICLES))}

    @functools.lru_cache(maxsize=1000)
    def linked(title: str) -> tuple[Passage, ...]:
        title = title.strip().lower()
        record = {"title": title, "text": articles.get(title, "")}
        return tuple(passages(record, f"{path.with_name(ARTICLES)}: article {title}"))

    repeats: Counter[str] = Counter()
    for place, article in reading.records(path):
        own = passages(article, place)
        links = [reading.get(link, "target", str, place) for link in reading.objects(article, "links", place)]
        others = [passage for link in links for passage in linked(link)[:1]]
        for record in reading.objects(article, "questions", place):
            if reading.get(record, "answer", dict, place).get("type") == "none":
                continue
            gold = []
            for part in reading.objects(record, "context", place):
                page = linked(reading.get(part, "passage", str, place))
                if page:
                    gold.append(_closest(page, reading.get(part, "text", str, place)))
            title = reading.get(article, "title", str, place)
            id = reading.unrepeated(_id(record, title, place), repeats)
            yield id, list({passage.id: passage for passage in [*own, *gold, *others]}.values())


def _closest(page: Sequence[Passage], snippet: str) -> Passage:
    """The paragraph that contains a snippet, or else the one with most of its words."""
    text = " ".join(snippet.split())
    words = set(text.split())
    return max(page, key=lambda passage: (text in passage.text, len(words & set(passage.text.split()))))


_BUCKET = "https://iirc-dataset.s3.us-west-2.amazonaws.com"
_SHA256 = "adfc34c8180337467105b2f534410c34e4fe43a82e6da03922440387802ca441"

RELEASE = Release(
    name="iirc",
    page="allenai.org/data/iirc",
    licence="cc-by-4.0",
    # The loader reads the articles that lie beside the questions.
    files=(
        File(address=f"{_BUCKET}/context_articles.tar.gz", member=ARTICLES, unverified="size and SHA-256"),
        File(address=f"{_BUCKET}/iirc_train_dev.tgz", member="dev.json", split="dev", sha256=_SHA256),
        File(address=f"{_BUCKET}/iirc_train_dev.tgz", member="train.json", split="train", sha256=_SHA256),
    ),
    note="corpora: context_articles.json, and dev.json's own articles",
)

BENCHMARK = Benchmark(
    title="IIRC",
    load_questions=partial(reading.questions, _records, _question, numbered=True),
    load_corpus=load_corpus,
    load_contexts=load_contexts,
    family="drop",
    source=RELEASE,
)
