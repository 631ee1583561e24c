"""What the gold evidence would write at a stage: a candidate for teachers too weak to find one by themselves.

It uses nothing that the model could not see: a note holds facts of the passages at hand, a query
names the title of a passage that the index can find. Pairs tell it apart (`chosen_source.kind`).
"""

from collections.abc import Awaitable, Callable
from typing import Any

from eval.metrics.text import token_f1
from eval.notes import note_quality
from notewriter.method import Kind
from notewriter.records import Passage, Question
from notewriter.rollouts.parsing import parse_note

Search = Callable[[str, int], Awaitable[list[Passage]]]


async def gold_note(question: Question, variables: dict[str, Any], search: Search) -> str | None:
    """The supporting facts that stand in the note so far or in the passages, word for word, one a line."""
    note = variables.get("note", "")
    texts = [note, *(passage.text for passage in variables["passages"])]
    facts = [fact for fact in question.supporting_facts if any(fact in text for text in texts)]
    return "\n".join(facts) or None


async def gold_document_note(question: Question, variables: dict[str, Any], search: Search) -> str | None:
    """A note-taker's reply to one document (NotesWriting): its supporting facts that are not noted yet, or NO.

    None where no facts are known, so that nobody can tell what is relevant.
    """
    if not question.supporting_facts:
        return None
    facts = _new_facts(question, variables)
    return "YES#" + "\n".join(facts) if facts else "NO#No relevant information."


async def gold_query(question: Question, variables: dict[str, Any], search: Search) -> str | None:
    """A question for the title of the passage that holds the first fact missing in the note.

    None where the note holds every fact, or does not name that title, so that no model could know it; and where the
    stage is given no note.
    """
    note = variables.get("note", "")
    for fact in question.supporting_facts:
        if fact not in note:
            titles = [passage.title for passage in await search(fact, 3) if fact in passage.text]
            return f"What is known about {titles[0]}?" if titles and titles[0] in note else None
    return None


async def gold_status(question: Question, variables: dict[str, Any], search: Search) -> str | None:
    """The adaptive decision by the gold evidence."""
    return f'{{"status": "{is_better(question, variables["best_note"], variables["new_note"])}"}}'


async def gold_answer(question: Question, variables: dict[str, Any], search: Search) -> str | None:
    """The gold answer; None where it is empty, as for a question that cannot be answered."""
    return question.answers[0].strip() or None


GOLD: dict[Kind, Callable[[Question, dict[str, Any], Search], Awaitable[str | None]]] = {
    "note": gold_note,
    "updated note": gold_note,
    "document note": gold_document_note,
    "query": gold_query,
    "status": gold_status,
    "answer": gold_answer,
}
"""What the gold evidence would write, by the kind of stage; a step has no such text."""


def is_better(question: Question, best_note: str, new_note: str) -> bool:
    """Whether a new note is worth more than the one so far by the gold evidence."""
    return reference_score(new_note, question) > reference_score(best_note, question)


def reference_score(note: str, question: Question) -> float:
    """A note's worth by the gold evidence, 0 to 1: what it holds of it against its length.

    The mean of (a) its token F1 against the supporting facts, which falls for what is missing and for
    what is beside the point, and (b) whether it holds a gold answer; (b) alone where no facts are known.
    """
    has_answer = note_quality(note, question).get("note_has_answer", 0.0)
    if not question.supporting_facts:
        return has_answer
    return (token_f1(note, " ".join(question.supporting_facts)) + has_answer) / 2


def document_note_score(reply: str, question: Question, variables: dict[str, Any]) -> float:
    """A note-taker's reply to one document by the gold evidence, 0 to 1.

    Where the document has supporting facts that are not noted yet, the token F1 of the note against them; where it
    has none, 1 for a NO and 0 for a note. A reply that is neither YES nor NO is worth nothing.
    """
    note = parse_note(reply)
    if note is None:
        return 0.0
    facts = _new_facts(question, variables)
    return token_f1(note, " ".join(facts)) if facts else float(not note)


def _new_facts(question: Question, variables: dict[str, Any]) -> list[str]:
    """The supporting facts that stand in the passages and not in the note so far."""
    text = "\n".join(passage.text for passage in variables["passages"])
    return [fact for fact in question.supporting_facts if fact in text and fact not in variables["note"]]
