"""HotpotQA and 2WikiMultihopQA: a JSON list; each question has `context`, a list of [title, sentences]."""

from functools import partial
from typing import Any

from notewriter.datasets import reading
from notewriter.errors import UserError
from notewriter.records import Passage, Question


def _question(record: dict[str, Any], place: str) -> Question:
    """Supporting facts that point to no sentence of the context, as some in HotpotQA do, are left out.

    2WikiMultihopQA keeps aliases in a file of its own, by `answer_id`, which is kept in the metadata.
    """
    # Of two paragraphs with one title, the first is meant.
    paragraphs = {title: (passage_id, sentences) for passage_id, title, sentences in reversed(_context(record, place))}
    ids, facts = [], []
    for title, index in reading.pairs(record, "supporting_facts", (str, int), place):
        passage_id, sentences = paragraphs.get(title, ("", []))
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


load_questions = partial(reading.questions, reading.array, _question)
load_corpus = partial(reading.union, reading.array, _passages)
