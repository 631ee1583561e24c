"""Judges: each looks at the candidates of one prompt and names the better and the worse, or says why it cannot.

A judge is an async function of a `Case`; `JUDGES` holds them by name.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_construction.gold import is_better, reference_score
from eval.metrics import score
from notewriter.parsing import parse_best_and_worst, parse_status
from notewriter.records import Passage, Question


@dataclass(frozen=True)
class Case:
    """What a judge gets to see.

    `candidates` are distinct, non-empty texts; `choosable` says which of them may be the better one
    (a completion that was cut at its token limit may only be the worse one). `variables` are those of
    the prompt they answer. `ask` sends a prompt to the judge's model, `search` asks the index.
    `family` names the metric family that answers are scored with.
    """

    question: Question
    stage: str
    variables: dict[str, Any]
    candidates: Sequence[str]
    choosable: Sequence[bool]
    ask: Callable[..., Awaitable[str]]
    search: Callable[[str, int], Awaitable[list[Passage]]]
    family: str
    random: random.Random
    min_gap: float


@dataclass(frozen=True)
class Verdict:
    """The indices of the better and the worse candidate, or a `reason` why there is no pair.

    `scores` has a number for each candidate where the judge gives numbers; `replies` are its raw words.
    """

    chosen: int | None = None
    rejected: int | None = None
    scores: list[float | None] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    reason: str = ""


Judge = Callable[[Case], Awaitable[Verdict]]


async def llm(case: Case) -> Verdict:
    """A judge model sees all candidates and names the best and the worst (DNAlign's D_Init and D_QR, appendix D).

    The candidates are shuffled first, so that a liking for a place in the list does not become a preference.
    """
    order = list(range(len(case.candidates)))
    case.random.shuffle(order)
    reply = await case.ask(
        "judge/best_and_worst",
        kind="query" if "passages" not in case.variables else "note",
        question=case.question.question,
        note=case.variables.get("note", ""),
        passages=case.variables.get("passages", []),
        candidates=[case.candidates[index] for index in order],
    )
    parsed = parse_best_and_worst(reply, len(order))
    if parsed is None:
        return Verdict(replies=[reply], reason="judge reply not readable")
    best, worst = (order[index] for index in parsed)
    if best == worst:
        return Verdict(replies=[reply], reason="judge named one candidate twice")
    if not case.choosable[best]:
        return Verdict(replies=[reply], reason="the best candidate was cut at its token limit")
    return Verdict(best, worst, replies=[reply])


async def decision(case: Case) -> Verdict:
    """The adaptive-decision prompt compares each candidate note with the one before it (DNAlign's D_KA, appendix D).

    The better one is a random True, the worse one a random False. Without a False the method still
    goes on with a True.
    """
    replies = [
        await case.ask(
            "deepnote/decide",
            question=case.question.question,
            best_note=case.variables["note"],
            new_note=candidate,
        )
        for candidate in case.candidates
    ]
    statuses = [parse_status(reply) for reply in replies]
    scores = [None if status is None else float(status) for status in statuses]
    better = [i for i, status in enumerate(statuses) if status is True and case.choosable[i]]
    worse = [i for i, status in enumerate(statuses) if status is False]
    chosen = case.random.choice(better) if better else None
    if better and worse:
        return Verdict(chosen, case.random.choice(worse), scores, replies)
    if None in statuses:
        return Verdict(chosen, scores=scores, replies=replies, reason="judge reply not readable")
    reason = "no candidate better" if worse else "no candidate worse"
    return Verdict(chosen, scores=scores, replies=replies, reason=reason)


async def metric(case: Case) -> Verdict:
    """The task's own metric ranks answers, no model (DNAlign's D_Ans, appendix D).

    Candidates are scored with token F1 against the golds; where it is 0 or 1 this is the paper's
    random right one and random wrong one.
    """
    golds = list(case.question.answers)
    return _by_score(case, [score(case.family, candidate, golds)["f1"] for candidate in case.candidates])


async def reference(case: Case) -> Verdict:
    """The gold evidence ranks notes, no model: what they hold of it against their length (`reference_score`)."""
    return _by_score(case, [reference_score(candidate, case.question) for candidate in case.candidates])


async def status(case: Case) -> Verdict:
    """The gold evidence tells whether an adaptive decision is right, no model; one that cannot be read is wrong."""
    best_note, new_note = case.variables["best_note"], case.variables["new_note"]
    right = is_better(case.question, best_note, new_note)
    return _by_score(case, [float(parse_status(candidate) is right) for candidate in case.candidates])


async def retrieval(case: Case) -> Verdict:
    """The index ranks queries, no model: the mean reciprocal rank of the supporting passages.

    The query goes out with the question, as `deepnote` sends it.
    """
    scores = []
    for candidate in case.candidates:
        found = [passage.id for passage in await case.search(f"{candidate} {case.question.question}", 10)]
        ranks = [1 / (found.index(id) + 1) if id in found else 0.0 for id in case.question.supporting_ids]
        scores.append(sum(ranks) / len(ranks) if ranks else 0.0)
    return _by_score(case, scores)


def _by_score(case: Case, scores: list[float]) -> Verdict:
    """The highest choosable score against the lowest; a tie is broken at random."""
    rounded: list[float | None] = [round(value, 4) for value in scores]
    choosable = [i for i, may in enumerate(case.choosable) if may]
    if not choosable:
        return Verdict(scores=rounded, reason="every candidate was cut at its token limit")
    highest, lowest = max(scores[i] for i in choosable), min(scores)
    chosen = case.random.choice([i for i in choosable if scores[i] == highest])
    if highest <= 0:
        return Verdict(chosen=chosen, scores=rounded, reason="no candidate better than nothing")
    if highest - lowest < case.min_gap or highest == lowest:
        return Verdict(chosen=chosen, scores=rounded, reason="candidates too much alike")
    rejected = case.random.choice([i for i, value in enumerate(scores) if value == lowest])
    return Verdict(chosen, rejected, rounded)


JUDGES: dict[str, Judge] = {
    "llm": llm,
    "decision": decision,
    "metric": metric,
    "reference": reference,
    "retrieval": retrieval,
    "status": status,
}

_NOTES = ("deepnote/init_note", "deepnote/accumulate_knowledge")
_QUERIES = ("deepnote/refine_query",)

JUDGED_STAGES: dict[str, tuple[str, ...]] = {
    "llm": (*_NOTES, *_QUERIES),
    "decision": ("deepnote/accumulate_knowledge",),
    "metric": ("deepnote/answer", "vanilla/answer", "direct/answer"),
    "reference": _NOTES,
    "retrieval": _QUERIES,
    "status": ("deepnote/decide",),
}
"""Judge -> the stages whose candidates it understands: notes, queries, answers or decisions."""
