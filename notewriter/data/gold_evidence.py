"""Candidates written from the gold evidence, for teachers too weak to find them, and scores against that evidence.

They use nothing that the model cannot see: a note has facts of the passages in its prompt, a query names the title of a
passage that the index can find. A text has a fact whatever its white space. Pairs mark them (`chosen_source.kind`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from notewriter.evaluation.metrics.text import f1_of
from notewriter.evaluation.notes import ANSWER, FACTS, note_quality
from notewriter.ground.records import Message, Passage, Question
from notewriter.ground.text import first_words, holds, normalise, places_of, tokens
from notewriter.rollouts.controls import facts_among, first_sentences, with_more
from notewriter.rollouts.method import Kind
from notewriter.rollouts.parsing import parse_note

Search = Callable[[str, int], Awaitable[list[Passage]]]


async def gold_note(question: Question, variables: Mapping[str, Any], search: Search) -> str | None:
    """The supporting facts that occur whole in the note so far or the passages; None without any.

    The facts of a passage, or of a paragraph of the note, are one paragraph, as DeepNote's prompts ask.
    """
    return _written(_known_facts(question, variables))


async def gold_document_note(question: Question, variables: Mapping[str, Any], search: Search) -> str | None:
    """A note-taker's reply to one document (NotesWriting): its supporting facts that are not in the note yet, or NO.

    None without known facts, since relevance is then unknown.
    """
    if not question.supporting_facts:
        return None
    facts = _new_facts(question, variables)
    return "YES#" + "\n".join(facts) if facts else "NO#No relevant information."


async def gold_query(question: Question, variables: Mapping[str, Any], search: Search) -> str | None:
    """A question about the title of the passage with the first fact that the note lacks and no query has asked for.

    None if there is no such fact, or the note does not mention the title, so that no model could know it; also None at
    stages whose prompt has no note. ReSP's note has the queries that were asked.
    """
    note, asked = variables.get("note", ""), variables.get("queries", ())
    for fact in question.supporting_facts:
        if not _has(note, fact):
            titles = [passage.title for passage in await search(fact, 3) if passage.title and _has(passage.text, fact)]
            query = f"What is known about {titles[0]}?" if titles and titles[0] in note else None
            if query is None or (query not in asked and query not in note):
                return query
    return None


async def gold_status(question: Question, variables: Mapping[str, Any], search: Search) -> str | None:
    """The adaptive decision according to the gold evidence; None where none is known."""
    better = is_better(question, variables["best_note"], variables["new_note"])
    return None if better is None else f'{{"status": "{better}"}}'


async def gold_answer(question: Question, variables: Mapping[str, Any], search: Search) -> str | None:
    """The gold answer, whether the prompt contains it or not (`told_answer`); None if no answer has a word."""
    return next((answer.strip() for answer in question.answers if tokens(answer)), None)


WRITERS: dict[Kind, Callable[[Question, Mapping[str, Any], Search], Awaitable[str | None]]] = {
    "note": gold_note,
    "updated note": gold_note,
    "document note": gold_document_note,
    "query": gold_query,
    "status": gold_status,
    "answer": gold_answer,
}
"""Writers by kind of stage; a step has none."""


async def written(
    kind: Kind, question: Question, variables: Mapping[str, Any], search: Search, note_words: int | None = None
) -> str | None:
    """The gold evidence's reply at a stage of this kind; None if it has none.

    With `note_words`, a first note goes on with the first sentences of the passages, in the order of the control
    `lead`, as long as whole ones fit. A model that learns the evidence alone stops early, and loses at equal words to
    one that goes on.
    """
    text = await WRITERS[kind](question, variables, search)
    if text is None or note_words is None or kind != "note":
        return text
    return "\n".join(with_more(text.split("\n"), first_sentences(variables["passages"]), note_words))


def told_answer(messages: Sequence[Message], question: Question) -> str | None:
    """The first gold answer that a prompt contains word for word; the question itself does not count.

    A comparison names its answer in the question. A yes or no counts as contained in any prompt.
    """
    if {normalise(answer) for answer in question.answers} & {"yes", "no"}:
        return question.answers[0].strip()
    evidence = "\n".join(message["content"] for message in messages).replace(question.question, "\n")
    for answer in question.answers:
        if note_quality(evidence, replace(question, answers=(answer,))).get("note_has_answer"):
            return answer.strip()
    return None


def is_better(question: Question, best_note: str, new_note: str) -> bool | None:
    """Whether a new note has a higher `reference_score` than the current one, both whole; None without evidence."""
    question = replace(question, answers=_named_answers(question))
    best, new = reference_score(best_note, question), reference_score(new_note, question)
    return None if best is None or new is None else new > best


def at_hand(question: Question, variables: Mapping[str, Any]) -> Question:
    """The question with only the facts and answers that the note so far or the passages contain.

    Without a yes or no, which any text may say without knowing it.
    """
    texts = [variables.get("note", ""), *(passage.text for passage in variables["passages"])]
    facts = [fact for paragraph in _known_facts(question, variables) for fact in paragraph]
    answers = [answer for answer in _named_answers(question) if holds("\n".join(texts), answer)]
    return replace(question, supporting_facts=tuple(facts), answers=tuple(answers))


def reference_score(note: str, question: Question, words: int | None = None) -> float | None:
    """The share of the evidence in a note's first `words` words (None: in all of them), in [0, 1].

    The mean of (a) how much of the question's supporting facts they contain and (b) whether they contain one of its
    answers; of those two that there are. None without facts and answers. Within a budget, (a) is the share of the facts
    that evaluations measure (`note_fact_recall_40`): the words are few already, so that leaving out a sentence which
    only may be evidence gains nothing. Of a whole note it is token F1, which penalises irrelevant text too. So that
    length alone does not pay, give a question `at_hand`: a fact that was not retrieved is not missing then.
    """
    quality = note_quality(note if words is None else first_words(note, words), question)
    if words is None and FACTS in quality:
        quality[FACTS] = f1_of(tokens(note), tokens(" ".join(question.supporting_facts)))
    halves = [quality[name] for name in (FACTS, ANSWER) if name in quality]
    return fmean(halves) if halves else None


def document_note_score(reply: str, question: Question, variables: Mapping[str, Any]) -> float:
    """The score of a note-taker's reply to one document, in [0, 1].

    If the document has supporting facts that are not in the note yet: the note's token F1 against them. If it has none:
    1 for a NO and 0 for a note. A reply that is neither YES nor NO scores 0.
    """
    note = parse_note(reply)
    if note is None:
        return 0.0
    facts = _new_facts(question, variables)
    return f1_of(tokens(note), tokens(" ".join(facts))) if facts else float(not note)


Paragraphs = list[list[str]]
"""The facts of each paragraph of a note."""


def _written(paragraphs: Paragraphs) -> str | None:
    return "\n".join(" ".join(facts) for facts in paragraphs if facts) or None


def _named_answers(question: Question) -> tuple[str, ...]:
    """The gold answers that are no yes or no."""
    return tuple(answer for answer in question.answers if tokens(answer) and normalise(answer) not in {"yes", "no"})


def _known_facts(question: Question, variables: Mapping[str, Any]) -> Paragraphs:
    """The supporting facts that occur whole in the note so far or the passages, by the paragraph or passage."""
    note = variables.get("note", "")
    sources = [*note.split("\n"), note, *(passage.text for passage in variables["passages"])]
    paragraphs: dict[str, list[str]] = {}
    for fact in question.supporting_facts:
        if source := next((text for text in sources if _has(text, fact)), None):
            paragraphs.setdefault(source, []).append(fact)
    return list(paragraphs.values())


def _new_facts(question: Question, variables: Mapping[str, Any]) -> list[str]:
    """The supporting facts that occur in the passages but not in the note so far."""
    return [fact for fact in facts_among(question, variables["passages"]) if not _has(variables["note"], fact)]


def _has(text: str, fact: str) -> bool:
    return bool(places_of([fact], [text]))
