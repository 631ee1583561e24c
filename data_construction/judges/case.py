"""What a judge sees and what it returns."""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from notewriter.method import Kind, Stage
from notewriter.records import Passage, Question


class AskModel(Protocol):
    """Sends the prompt of a stage to the judge's model and returns its reply; the variables fill the prompt."""

    def __call__(self, stage: Stage, json_schema: dict[str, Any] | None = None, **variables: Any) -> Awaitable[str]:
        """One reply, without surrounding white space."""


@dataclass(frozen=True)
class Case:
    """The candidates of one prompt, and the means to compare them.

    Args:
        question: the question being rolled out.
        kind: what the candidates are (`notewriter.method.Kind`).
        request: the prompt that the candidates reply to.
        variables: what filled that prompt.
        candidates: distinct, non-empty texts.
        choosable: for each candidate, whether it may be chosen; a completion that was cut at its token limit may only
            be rejected.
        ask: asks the judge's model.
        search: asks the index for passages (query, top-k).
        finish: rolls a candidate forward to the method's answer; None if the endpoint refuses a request on the way.
        next_query: the first query that the method sends to the index after a candidate; None if it sends none.
        family: the metric family that scores answers.
        random: the source of chance, seeded per prompt.
        orders: in how many orders a judge's model sees the candidates, 1 or 2.
        min_gap: the smallest difference of two scores that makes a pair.
    """

    question: Question
    kind: Kind
    request: str
    variables: Mapping[str, Any]
    candidates: Sequence[str]
    choosable: Sequence[bool]
    ask: AskModel
    search: Callable[[str, int], Awaitable[list[Passage]]]
    finish: Callable[[str], Awaitable[str | None]]
    next_query: Callable[[str], Awaitable[str | None]]
    family: str
    random: random.Random
    orders: int = 2
    min_gap: float = 0.0

    def among(self, members: Sequence[int]) -> "Case":
        """The same case restricted to some of its candidates."""
        return replace(
            self,
            candidates=[self.candidates[index] for index in members],
            choosable=[self.choosable[index] for index in members],
        )


@dataclass(frozen=True)
class Verdict:
    """The chosen and the rejected candidate, or the reason why there is no pair.

    Args:
        chosen: index of the better candidate. Without a pair, the one that the method continues with.
        rejected: index of the worse candidate.
        scores: one per candidate, for judges that score; None for a candidate without a score.
        replies: raw replies of the judge's model, or the answers that candidates led to.
        orders: for each reply, the indices of the candidates in the order in which the model saw them.
        agreements: for each question put in two orders, whether both replies named the same candidates.
        reason: why there is no pair; empty if there is one.
        best: indices tied with the chosen candidate.
        worst: indices tied with the rejected candidate.
        alike: whether all candidates are equally good, so that `chosen` is arbitrary.
        judge: the judges that decided, separated by commas.
        unreadable: how many of the replies could not be parsed.
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


def by_score(case: Case, scores: Sequence[float | None]) -> Verdict:
    """Pair the highest choosable score with the lowest score; ties are broken at random.

    Args:
        case: the candidates.
        scores: one per candidate; None excludes it from the pair.
    """
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
