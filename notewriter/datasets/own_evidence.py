"""The places of questions' evidence in a corpus, and the groups of questions that share documents.

A supporting fact is found where a passage has its words in a row, whatever stands between them; it is then taken in the
passage's own characters, since notes of gold evidence are looked for in passages character by character.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notewriter.datasets import reading
from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.ground.records import Question
from notewriter.ground.text import UNSPACED, tokens

if TYPE_CHECKING:
    import regex
else:
    regex = Lazy("regex")

KEY = 3
"""Words of a fact that are looked up at each place of a passage."""

SHOWN = 100
"""Characters of a fact or a passage in a line."""

NAMED = 8
"""Line numbers that a line of the check lists."""

NEAREST = 3
"""Facts that are not found and whose nearest passage is named."""


@functools.cache
def _word() -> regex.Pattern[str]:
    """A word, or a character of a script that has no space between words."""
    return regex.compile(rf"(?=\w)[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+")


@dataclass
class Evidence:
    """The places of questions' evidence and answers in a corpus.

    Args:
        passages: how many passages were read.
        found: fact -> the same words in the characters of the first passage that has them.
        documents: fact, or the id of a supporting passage -> the documents that have it.
        nearest: fact that is not found -> the id and the text of the passage that shares most of its words.
        answered: the answers that occur.
    """

    passages: int = 0
    found: dict[str, str] = field(default_factory=dict)
    documents: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    nearest: dict[str, tuple[str, str]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)

    def of(self, question: Question) -> set[str]:
        """The documents that hold a question's evidence."""
        named = (*question.supporting_facts, *question.supporting_ids)
        return {document for each in named for document in self.documents.get(each, ())}

    def in_its_words(self, question: Question) -> Question:
        """The question with its facts as the corpus spells them."""
        facts = tuple(self.found.get(fact, fact) for fact in question.supporting_facts)
        return replace(question, supporting_facts=facts)


def find(corpus: Path, questions: Sequence[Question]) -> Evidence:
    """Look the evidence and the answers of questions up in a corpus.

    Raises:
        UserError: the corpus cannot be read or has no passages.
    """
    evidence = Evidence()
    facts = list(dict.fromkeys(fact for question in questions for fact in question.supporting_facts))
    answers = list(dict.fromkeys(answer for question in questions for answer in question.answers))
    ids = {id for question in questions for id in question.supporting_ids}
    facts_by_key, answers_by_key = _by_key(facts), _by_key(answers)
    for place, record in reading.records(corpus):
        id, text = (reading.get(record, key, str, place) for key in ("id", "text"))
        document = document_of(record, id)
        evidence.passages += 1
        words = list(_words(text))
        spelled = [word for word, _, _ in words]
        if id in ids:
            evidence.documents[id].add(document)
        for fact, first, last in _occurring(facts_by_key, spelled):
            evidence.documents[fact].add(document)
            if fact in text:
                evidence.found[fact] = fact
            else:
                evidence.found.setdefault(fact, _span(text, words[first][1], words[last][2]))
        evidence.answered.update(answer for answer, _, _ in _occurring(answers_by_key, spelled))
    if not evidence.passages:
        raise UserError(f"{corpus}: contains no passages; check that it is the right file")
    evidence.nearest = _nearest(corpus, [fact for fact in facts if fact not in evidence.found][:NEAREST])
    return evidence


def document_of(record: Mapping[str, Any], id: str) -> str:
    """The document of a passage: the file, or else the page, that its origin names; without one the passage itself."""
    origin = record.get("origin")
    named = [origin[key] for key in ("file", "url", "title") if origin.get(key)] if isinstance(origin, dict) else []
    return str(named[0]) if named else id


def check(questions: Sequence[Question], places: Mapping[str, str], evidence: Evidence, path: str) -> list[str]:
    """The faults of a question file over a corpus, in ten lines at most, with the numbers of its lines.

    Args:
        questions: the questions.
        places: the id of each question -> its line or row.
        evidence: what `find` returned for them.
        path: the file, for the first line.
    """
    lines = [f"{path}: {len(questions)} questions over {evidence.passages:,} passages"]
    faulty: dict[str, None] = {}

    def say(right: int, what: str, wrong: Sequence[Question], rest: str, of: int = len(questions)) -> None:
        at = [places[question.id] for question in wrong]
        faulty.update(dict.fromkeys(at))
        lines.append(f"  {right:4} of {of} {what}" + (f"; {rest} {_listed(at)}" if at else ""))

    without = [each for each in questions if not (each.supporting_facts or each.supporting_ids)]
    say(len(questions) - len(without), "have evidence", without, "`supporting_facts` is missing on")
    kinds: list[tuple[str, Callable[[Question], tuple[str, ...]], Container[str]]] = [
        ("evidence sentences are in the corpus", lambda each: each.supporting_facts, evidence.found),
        ("supporting passages are in the corpus", lambda each: each.supporting_ids, evidence.documents),
    ]
    for what, of, known in kinds:
        if named := [(each, one) for each in questions for one in of(each)]:
            on = [each for each in questions if any(one not in known for one in of(each))]
            say(sum(one in known for _, one in named), what, on, "not those on", of=len(named))
    shown = {fact: each for each in questions for fact in each.supporting_facts if fact in evidence.nearest}
    for fact, each in shown.items():
        id, text = evidence.nearest[fact]
        lines.append(f"       {_listed([places[each.id]])}: {_short(fact)!r} is nearest to {id}: {_short(text)!r}")
    if other := [each for each in questions if evidence.in_its_words(each) != each]:
        say(len(other), "have evidence with other spaces or marks, which is taken as the corpus has it", other, "on")
    unanswered = [each for each in questions if not _is_answered(each, evidence)]
    say(len(questions) - len(unanswered), "have an answer that the corpus holds", unanswered, "not those on")
    asked: dict[str, Question] = {}
    again = [each for each in questions if asked.setdefault(as_asked(each), each) is not each]
    say(len(questions) - len(again), "are asked once", again, "asked before are those on")
    if at := [place for place in places.values() if place in faulty]:
        # A pipeline shows this line alone; the log has all.
        lines[0] += f"; look at {_listed(at)}"
    return lines


def hold_out(
    questions: Sequence[Question], evidence: Evidence, order: Sequence[int], dev: int
) -> tuple[set[int], bool]:
    """The questions to hold out: in this order, whole groups that share documents, as many as fit into `dev`.

    Where less than half as many can be held out so (one document holds the evidence of nearly all), questions are drawn
    one by one.

    Returns:
        Their places, and whether no document holds evidence of both parts.
    """
    held: set[int] = set()
    for group in _together(questions, evidence, order):
        if len(held) + len(group) <= dev:
            held.update(group)
    if 2 * len(held) >= dev:
        return held, True
    # A question that is asked twice is on one side even so.
    held.clear()
    by_question: dict[str, list[int]] = defaultdict(list)
    for index in order:
        by_question[as_asked(questions[index])].append(index)
    for same in by_question.values():
        if len(held) + len(same) <= dev:
            held.update(same)
    return held, False


def _together(questions: Sequence[Question], evidence: Evidence, order: Sequence[int]) -> list[list[int]]:
    """The questions in groups; no two groups share a document or a wording."""
    groups: list[tuple[set[str], list[int]]] = []
    for index in order:
        names, members = {f"document {each}" for each in evidence.of(questions[index])}, [index]
        names.add(as_asked(questions[index]))
        apart = []
        for others, those in groups:
            if names.isdisjoint(others):
                apart.append((others, those))
            else:
                names, members = names | others, those + members
        groups = [*apart, (names, members)]
    return [members for _, members in groups]


def as_asked(question: Question) -> str:
    """The words of a question, by which duplicates are recognised."""
    return " ".join(tokens(question.question))


def _is_answered(question: Question, evidence: Evidence) -> bool:
    """Whether a gold answer occurs; a yes or no needs no text."""
    return any(answer in evidence.answered or _spelled(answer) in (["yes"], ["no"]) for answer in question.answers)


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    return ((match[0].casefold(), match.start(), match.end()) for match in _word().finditer(text))


def _spelled(text: str) -> list[str]:
    return [word for word, _, _ in _words(text)]


def _by_key(texts: Iterable[str]) -> dict[tuple[str, ...], list[tuple[str, list[str]]]]:
    """Texts by their first words, beside all of these."""
    by_key: dict[tuple[str, ...], list[tuple[str, list[str]]]] = defaultdict(list)
    for text in texts:
        if words := _spelled(text):
            by_key[tuple(words[:KEY])].append((text, words))
    return by_key


def _occurring(
    by_key: Mapping[tuple[str, ...], list[tuple[str, list[str]]]], words: Sequence[str]
) -> Iterator[tuple[str, int, int]]:
    """The texts whose words occur in a row, with the places of their first and last word."""
    lengths = {len(key) for key in by_key}
    for start in range(len(words)):
        for length in lengths:
            for text, wanted in by_key.get(tuple(words[start : start + length]), ()):
                if list(words[start : start + len(wanted)]) == wanted:
                    yield text, start, start + len(wanted) - 1


def _span(text: str, start: int, end: int) -> str:
    """A part of a text with the marks that end it."""
    while end < len(text) and not (text[end].isalnum() or text[end].isspace()):
        end += 1
    return text[start:end]


def _nearest(corpus: Path, facts: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The passage that shares most words with each fact, the shorter one of two."""
    wanted = {fact: set(_spelled(fact)) for fact in facts}
    best: dict[str, tuple[int, int, str, str]] = {}
    for place, record in reading.records(corpus) if wanted else ():
        id, text = (reading.get(record, key, str, place) for key in ("id", "text"))
        words = set(_spelled(text))
        for fact, of in wanted.items():
            score = (len(of & words), -len(words), id, text)
            if score[0] and (fact not in best or score[:2] > best[fact][:2]):
                best[fact] = score
    return {fact: (id, text) for fact, (_, _, id, text) in best.items()}


def _listed(places: Sequence[str]) -> str:
    lines = all(place.isdecimal() for place in places)
    more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
    return (f"line{'s' * (len(places) > 1)} " if lines else "") + ", ".join(places[:NAMED]) + more


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else line[: SHOWN - 3] + "..."
