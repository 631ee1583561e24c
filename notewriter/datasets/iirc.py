"""IIRC: questions on an article that it answers only in part; the rest is in articles that it links to."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.records import Passage, Question

_TAG = re.compile(r"<[^>]*>")


def load_questions(path: Path) -> list[Question]:
    """The questions that can be answered, article by article, as in IRCoT's evaluation."""
    return reading.questions(_records, _question, path)


def _records(path: Path) -> reading.Records:
    for place, article in reading.array(path):
        for record in reading.objects(article, "questions", place):
            if reading.get(record, "answer", dict, place).get("type") != "none":
                yield place, record | {"title": reading.get(article, "title", str, place)}


def _question(record: dict[str, Any], place: str) -> Question:
    facts = [reading.get(part, "text", str, place) for part in reading.objects(record, "context", place)]
    return Question(
        id=reading.get(record, "qid", str, place),
        question=reading.get(record, "question", str, place),
        answers=(_answer(record["answer"], place),),
        supporting_facts=reading.distinct(fact.strip() for fact in facts if fact.strip()),
        metadata={"type": record["answer"]["type"], "title": record["title"]},
    )


def _answer(answer: dict[str, Any], place: str) -> str:
    """A span (several are joined), a number with its unit, or yes or no."""
    if answer.get("type") == "span":
        return ", ".join(
            reading.get(span, "text", str, place) for span in reading.objects(answer, "answer_spans", place)
        )
    return f"{answer.get('answer_value', '')} {answer.get('answer_unit') or ''}".strip()


def load_corpus(path: Path) -> Iterator[Passage]:
    """`context_articles.json`: title -> text with links in HTML; a passage is a paragraph of it."""
    for title, article in reading.mapping(path):
        for paragraph in str(article).split("\n"):
            text = " ".join(html.unescape(_TAG.sub("", paragraph)).split())
            if text:
                yield Passage(reading.passage_id(title, text), title, text)
