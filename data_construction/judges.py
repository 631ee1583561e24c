"""Judges: each looks at the candidates of one prompt and names the better and the worse, or says why it cannot.

A judge is an async function of a `Case`; `JUDGES` holds them by name. `decide` asks several in order.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, get_args

from data_construction.gold import document_note_score, is_better, reference_score
from eval.metrics import score
from notewriter.method import Kind, Stage
from notewriter.methods.deepnote import DECIDE
from notewriter.models.client import RequestRefused
from notewriter.records import Passage, Question
from notewriter.rollouts.parsing import parse_best_and_worst, parse_status

BEST_AND_WORST = Stage("judge/best_and_worst", "judge", rehearsal='{"best_id": 1, "worst_id": 2}')
"""Names the best and the worst of several candidates."""


@dataclass(frozen=True)
class Case:
    """What a judge gets to see.

    `candidates` are distinct, non-empty texts; `choosable` says which of them may be the better one
    (a completion that was cut at its token limit may only be the worse one). `kind` is what they are
    (`notewriter.method.Kind`), `request` the prompt that they answer and `variables` what filled it.

    `ask` sends a prompt to the judge's model, `search` asks the index. `finish` rolls a candidate forward: it
    gives the answer that the method comes to with it, `next_query` what the method then searches for first
    (None: it comes to none). `orders` says in how many orders a judge's model sees the candidates, 1 or 2.
    `family` names the metric family that answers are scored with.
    """

    question: Question
    kind: Kind
    request: str
    variables: dict[str, Any]
    candidates: Sequence[str]
    choosable: Sequence[bool]
    ask: Callable[..., Awaitable[str]]
    search: Callable[[str, int], Awaitable[list[Passage]]]
    finish: Callable[[str], Awaitable[str | None]]
    next_query: Callable[[str], Awaitable[str | None]]
    family: str
    random: random.Random
    orders: int = 2
    min_gap: float = 0.0

    def among(self, members: Sequence[int]) -> "Case":
        """The same case with these candidates alone."""
        return replace(
            self,
            candidates=[self.candidates[index] for index in members],
            choosable=[self.choosable[index] for index in members],
        )


@dataclass(frozen=True)
class Verdict:
    """The indices of the better and the worse candidate, or a `reason` why there is no pair.

    `scores` has a number for each candidate where the judge gives numbers; `replies` are its raw words, and
    `orders` the candidates' indices in the order in which it saw them, one list a reply. `agreements` say for
    each question that was put in two orders whether the two replies named the same. `best` and `worst` are the
    candidates that are as good as the one chosen, and as bad as the one rejected; `alike` says that all are
    worth the same. `judge` names who decided, `unreadable` counts the replies among `replies` that could not be read.
    """

    chosen: int | None = None
    rejected: int | None = None
    scores: list[float | None] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    orders: list[list[int]] = field(default_factory=list)
    agreements: list[bool] = field(default_factory=list)
    reason: str = ""
    best: Sequence[int] = ()
    worst: Sequence[int] = ()
    alike: bool = False
    judge: str = ""
    unreadable: int = 0


Judge = Callable[[Case], Awaitable[Verdict]]


async def decide(judges: Sequence[tuple[str, Judge]], case: Case) -> Verdict:
    """Ask judges in order, each further one only about what those before it left tied.

    Where one finds all candidates alike, the next judges them all. Where it finds several best ones or several
    worst ones, the next names the one among them; a tie that nobody breaks is broken at random. A judge whose
    endpoint refuses, as where all candidates together are beyond its context, leaves all of them tied.
    """
    (name, judge), *others = judges
    try:
        verdict = replace(await judge(case), judge=name)
    except RequestRefused:
        verdict = Verdict(alike=True, reason="the endpoint refused the judge's request", judge=name)
    if not others:
        return verdict
    if verdict.alike:
        further = await decide(others, case)
        return replace(
            _joined(verdict, further, range(len(case.candidates))),
            # Where the next judge names no better one, the method goes on with any of them, and there is no pair.
            chosen=verdict.chosen if further.chosen is None else further.chosen,
            rejected=None if further.chosen is None else further.rejected,
            scores=further.scores or verdict.scores,
            reason=further.reason,
        )
    for side, tied in (("chosen", verdict.best), ("rejected", verdict.worst)):
        if len(tied) > 1:
            further = await decide(others, case.among(tied))
            named = getattr(further, side)
            verdict = _joined(verdict, further, tied)
            verdict = verdict if named is None else replace(verdict, **{side: tied[named]})
    return verdict


def _joined(verdict: Verdict, further: Verdict, members: Sequence[int]) -> Verdict:
    """The verdict with the words of a further judge, who saw `members` of the candidates."""
    names = verdict.judge.split(", ")
    return replace(
        verdict,
        replies=verdict.replies + further.replies,
        orders=verdict.orders + [[members[index] for index in order] for order in further.orders],
        agreements=verdict.agreements + further.agreements,
        unreadable=verdict.unreadable + further.unreadable,
        judge=", ".join(dict.fromkeys([*names, *further.judge.split(", ")])),
    )


async def llm(case: Case) -> Verdict:
    """A judge model sees all candidates and names the best and the worst (DNAlign's D_Init and D_QR, appendix D).

    The candidates are shuffled, and shown a second time the other way round; only a pair that is named both
    times is one, so that a liking for a place in the list does not become a preference. (The paper asks once.)
    """
    order = list(range(len(case.candidates)))
    case.random.shuffle(order)
    orders = [order, order[::-1]][: case.orders]
    ids = list(range(1, len(order) + 1))
    schema = {
        "type": "object",
        "properties": {key: {"type": "integer", "enum": ids} for key in ("best_id", "worst_id")},
        "required": ["best_id", "worst_id"],
        "additionalProperties": False,
    }
    told = {key: value for key, value in case.variables.items() if key != "turns"} | {
        "question": case.question.question,
        "kind": case.kind,
        "request": case.request,
    }
    replies = list(
        await asyncio.gather(
            *(
                case.ask(
                    BEST_AND_WORST,
                    json_schema=schema,
                    **told | {"candidates": [case.candidates[index] for index in shown]},
                )
                for shown in orders
            )
        )
    )
    parsed = [parse_best_and_worst(reply, len(shown)) for reply, shown in zip(replies, orders, strict=True)]
    verdict = Verdict(replies=replies, orders=orders, unreadable=parsed.count(None))
    if verdict.unreadable:
        return replace(verdict, reason="judge reply not readable")
    named = [(shown[ids[0]], shown[ids[1]]) for ids, shown in zip(parsed, orders, strict=True) if ids]
    if any(best == worst for best, worst in named):
        return replace(verdict, reason="judge named one candidate twice")
    (best, worst), (best_again, worst_again) = named[0], named[-1]
    return replace(
        verdict,
        chosen=best if best == best_again and case.choosable[best] else None,
        rejected=worst if worst == worst_again else None,
        agreements=[named[0] == named[1]] if len(named) == 2 else [],
        reason=""
        if named[0] == named[-1] and case.choosable[best]
        else "judge named others in the other order"
        if named[0] != named[-1]
        else "the best candidate was cut at its token limit",
    )


async def decision(case: Case) -> Verdict:
    """The adaptive-decision prompt compares each candidate note with the one before it (DNAlign's D_KA, appendix D).

    The better one is a random True, the worse one a random False. Without a False the method still
    goes on with a True.
    """
    replies = list(
        await asyncio.gather(
            *(
                case.ask(
                    DECIDE,
                    json_schema=_STATUS_SCHEMA,
                    question=case.question.question,
                    best_note=case.variables["note"],
                    new_note=candidate,
                )
                for candidate in case.candidates
            )
        )
    )
    statuses = [parse_status(reply) for reply in replies]
    scores = [None if status is None else float(status) for status in statuses]
    better = [i for i, status in enumerate(statuses) if status is True and case.choosable[i]]
    worse = [i for i, status in enumerate(statuses) if status is False]
    chosen = case.random.choice(better) if better else None
    verdict = Verdict(chosen, None, scores, replies, best=better, worst=worse, unreadable=statuses.count(None))
    if better and worse:
        return replace(verdict, rejected=case.random.choice(worse))
    if verdict.unreadable:
        return replace(verdict, reason="judge reply not readable")
    return replace(verdict, alike=True, reason="no candidate better" if worse else "no candidate worse")


_STATUS_SCHEMA = {
    "type": "object",
    "properties": {"status": {"type": "string", "enum": ["True", "False"]}},
    "required": ["status"],
    "additionalProperties": False,
}


async def metric(case: Case) -> Verdict:
    """The task's own metric ranks answers, no model (DNAlign's D_Ans, appendix D).

    Candidates are scored by `answer_score`; where that is 0 or 1 this is the paper's random right one and
    random wrong one.
    """
    return by_score(case, [answer_score(case, candidate) for candidate in case.candidates])


async def outcome(case: Case) -> Verdict:
    """Each candidate is rolled forward to the answer that the method comes to with it, and that is scored.

    What a note or a query is worth is measured by what becomes of it; the answers are the verdict's `replies`.
    """
    answers = await asyncio.gather(*map(case.finish, case.candidates))
    verdict = by_score(case, [None if answer is None else answer_score(case, answer) for answer in answers])
    return replace(verdict, replies=[answer or "" for answer in answers])


def answer_score(case: Case, answer: str) -> float:
    """The F1 of an answer by the rules of the case's family, or the family's first metric where it has no F1."""
    scores = score(case.family, answer, case.question)
    return scores.get("f1", next(iter(scores.values())))


async def reference(case: Case) -> Verdict:
    """The gold evidence ranks notes, no model: what they hold of it against their length (`reference_score`).

    The reply to one document is held against what is new in that document (`document_note_score`).
    """
    if case.kind == "document note":
        if not case.question.supporting_facts:
            return Verdict(alike=True, reason="no facts are known")
        scores = [document_note_score(candidate, case.question, case.variables) for candidate in case.candidates]
    else:
        scores = [reference_score(candidate, case.question) for candidate in case.candidates]
    return by_score(case, scores)


async def status(case: Case) -> Verdict:
    """The gold evidence tells whether an adaptive decision is right, no model; one that cannot be read is wrong."""
    best_note, new_note = case.variables["best_note"], case.variables["new_note"]
    right = is_better(case.question, best_note, new_note)
    return by_score(case, [float(parse_status(candidate) is right) for candidate in case.candidates])


async def retrieval(case: Case) -> Verdict:
    """The index ranks queries, no model: the mean reciprocal rank of the supporting passages.

    What is searched for is what the method makes of the candidate (`deepnote` puts the question after it).
    """
    scores: list[float | None] = []
    for query in await asyncio.gather(*map(case.next_query, case.candidates)):
        if query is None:
            scores.append(None)
            continue
        found = [passage.id for passage in await case.search(query, 10)]
        ranks = [1 / (found.index(id) + 1) if id in found else 0.0 for id in case.question.supporting_ids]
        scores.append(sum(ranks) / len(ranks) if ranks else 0.0)
    return by_score(case, scores)


def by_score(case: Case, scores: Sequence[float | None]) -> Verdict:
    """The highest choosable score against the lowest; a tie is broken at random. None: a candidate with no score."""
    rounded = [None if value is None else round(value, 4) for value in scores]
    scored = {index: value for index, value in enumerate(scores) if value is not None}
    if not scored:
        return Verdict(scores=rounded, reason="no candidate could be rolled forward")
    choosable = {index: value for index, value in scored.items() if case.choosable[index]}
    if not choosable:
        return Verdict(scores=rounded, reason="every candidate was cut at its token limit")
    highest, lowest = max(choosable.values()), min(scored.values())
    best = [index for index, value in choosable.items() if value == highest]
    worst = [index for index, value in scored.items() if value == lowest]
    verdict = Verdict(case.random.choice(best), scores=rounded, best=best, worst=worst)
    if highest <= 0:
        return replace(verdict, alike=True, reason="no candidate better than nothing")
    if highest - lowest < case.min_gap or highest == lowest:
        return replace(verdict, alike=True, reason="candidates too much alike")
    return replace(verdict, rejected=case.random.choice(worst))


class Entry(NamedTuple):
    """A judge and the kinds of candidates that it understands."""

    judge: Judge
    kinds: tuple[Kind, ...] = get_args(Kind)


JUDGES: dict[str, Entry] = {
    "llm": Entry(llm),
    "outcome": Entry(outcome),
    "decision": Entry(decision, ("updated note",)),
    "metric": Entry(metric, ("answer",)),
    "reference": Entry(reference, ("note", "updated note", "document note")),
    "retrieval": Entry(retrieval, ("query",)),
    "status": Entry(status, ("status",)),
}
