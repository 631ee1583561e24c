"""HotpotQA and 2WikiMultihopQA: a JSON list; each question has `context`, a list of [title, sentences]."""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.errors import UserError
from notewriter.records import Passage, Question

logger = logging.getLogger(__name__)


def _question(record: dict[str, Any], place: str) -> Question:
    """Supporting facts that point to no sentence of the context, as some in HotpotQA do, are left out.

    A supporting paragraph that is not in the context, as in HotpotQA's fullwiki file, is known by its title alone,
    which stands for its id. `answer_id` is 2WikiMultihopQA's key of the answer's aliases.
    """
    # Of two paragraphs with one title, the first is meant.
    paragraphs = {title: (passage_id, sentences) for passage_id, title, sentences in reversed(_context(record, place))}
    ids, facts = [], []
    for title, index in reading.pairs(record, "supporting_facts", (str, int), place):
        if title not in paragraphs:
            ids.append(title)
            continue
        passage_id, sentences = paragraphs[title]
        if 0 <= index < len(sentences) and sentences[index]:
            ids.append(passage_id)
            facts.append(sentences[index])
    return Question(
        id=reading.get(record, "_id", str, place),
        question=reading.get(record, "question", str, place),
        answers=(reading.get(record, "answer", str, place),),
        supporting_ids=reading.distinct(ids),
        supporting_facts=reading.distinct(facts),
        metadata={key: record[key] for key in ("type", "level", "answer_id") if record.get(key) is not None},
    )


def _passages(record: dict[str, Any], place: str) -> list[Passage]:
    return [Passage(id, title, _join(sentences)) for id, title, sentences in _context(record, place)]


def _context(record: dict[str, Any], place: str) -> list[tuple[str, str, list[str]]]:
    """The id, title and stripped sentences of each paragraph; the numbering of the sentences stays."""
    paragraphs = []
    for title, sentences in reading.pairs(record, "context", (str, list), place):
        if not all(isinstance(sentence, str) for sentence in sentences):
            raise UserError(f"{place}: a paragraph of 'context' holds what is no sentence; use the original file")
        stripped = [sentence.strip() for sentence in sentences]
        paragraphs.append((reading.passage_id(title, _join(stripped)), title, stripped))
    return paragraphs


def _join(sentences: list[str]) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def load_with_aliases(path: Path) -> list[Question]:
    """2WikiMultihopQA's questions, with the aliases and demonyms of `id_aliases.json` where that is beside the file.

    Its official scorer takes the maximum over them.
    """
    questions = load_questions(path)
    aliases_path = path.with_name("id_aliases.json")
    if not aliases_path.exists():
        return questions
    aliases = {
        reading.get(record, "Q_id", str, place): [
            *reading.strings(record, "aliases", place),
            *reading.strings(record, "demonyms", place, optional=True),
        ]
        for place, record in reading.lines(aliases_path)
    }
    logger.info("%s: the aliases in it count as gold answers too", aliases_path)
    return [
        replace(
            question,
            answers=reading.distinct([*question.answers, *aliases.get(question.metadata.get("answer_id", ""), [])]),
        )
        for question in questions
    ]


load_questions = partial(reading.questions, reading.array, _question)
load_corpus = partial(reading.union, reading.array, _passages)
