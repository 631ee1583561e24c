"""MultiHop-RAG: questions over news articles, with the sentences that are the evidence; articles are a second file."""

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.records import Passage, Question


def _question(record: dict[str, Any], place: str) -> Question:
    """Questions have no ids: a digest of the question stands for one."""
    question = reading.get(record, "query", str, place)
    evidence = reading.objects(record, "evidence_list", place)
    return Question(
        id="multihoprag_" + hashlib.sha256(question.encode()).hexdigest()[:16],
        question=question,
        answers=(reading.get(record, "answer", str, place),),
        supporting_facts=reading.distinct(reading.get(part, "fact", str, place) for part in evidence),
        metadata={"type": record.get("question_type", ""), "hops": len(evidence)},
    )


def load_corpus(path: Path) -> Iterator[Passage]:
    """`corpus.json`, a list of articles; a passage is a paragraph of the `body`."""
    for place, article in reading.array(path):
        title = reading.get(article, "title", str, place)
        for paragraph in reading.get(article, "body", str, place).split("\n"):
            text = " ".join(paragraph.split())
            if text:
                yield Passage(reading.passage_id(title, text), title, text)


load_questions = partial(reading.questions, reading.array, _question)
