"""IIRC: questions on an article that it answers only in part; the rest is in articles that it links to."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notewriter.benchmarks import reading
from notewriter.benchmarks.benchmark import Benchmark
from notewriter.records import Passage, Question

_TAG = re.compile(r"<[^>]*>")


def load_questions(path: Path) -> list[Question]:
    """The questions that can be answered, article by article, as in IRCoT's evaluation."""
    return reading.questions(_records, _question, path, numbered=True)


def _records(path: Path) -> reading.Records:
    for place, article in reading.array(path):
        for record in reading.objects(article, "questions", place):
            if reading.get(record, "answer", dict, place).get("type") != "none":
                yield place, record | {"title": reading.get(article, "title", str, place)}


def _question(record: dict[str, Any], place: str) -> Question:
    """The unit of a number is no part of the gold, as in IRCoT's evaluation; it is kept in the metadata.

    So are the spans of an answer, which the metric family `drop` aligns one by one.
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
        id=str(record.get("qid") or reading.question_id("iirc", f"{record['title']} {question}")),
        question=question,
        answers=(", ".join(spans) or str(answer.get("answer_value", "")).strip(),),
        supporting_facts=reading.distinct(fact.strip() for fact in facts if fact.strip()),
        metadata={key: value for key, value in about.items() if value},
    )


def _spans(answer: dict[str, Any], place: str) -> list[str]:
    """The spans of an answer; none where it is a number, or yes or no."""
    if answer.get("type") != "span":
        return []
    return [reading.get(span, "text", str, place).strip() for span in reading.objects(answer, "answer_spans", place)]


def load_corpus(path: Path) -> Iterator[Passage]:
    """`context_articles.json`: title -> text with links in HTML; a passage is a paragraph of it, each of them once.

    The question file is a corpus too, of the articles that the questions were asked on.
    """
    return reading.union(reading.array if reading.is_list(path) else _articles, _passages, path)


def _articles(path: Path) -> reading.Records:
    return ((f"{path}: article {title}", {"title": title, "text": text}) for title, text in reading.mapping(path))


def _passages(record: dict[str, Any], place: str) -> list[Passage]:
    text = html.unescape(_TAG.sub("", reading.get(record, "text", str, place)))
    return reading.paragraphs(reading.get(record, "title", str, place), text)


BENCHMARK = Benchmark(
    title="IIRC",
    load_questions=load_questions,
    load_corpus=load_corpus,
    family="drop",
    source="allenai.org/data/iirc: dev.json; corpora: context_articles.json, and dev.json's own articles",
    licence="cc-by-4.0",
)
