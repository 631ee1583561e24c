"""Several judges in order: each decides the ties of those before it."""

from collections.abc import Sequence
from dataclasses import replace

from notewriter.data.judges.case import Case, Judge, Verdict
from notewriter.models.client import RequestRefused

NO_REASON = "the judge gave neither a pair nor a reason"
"""The reason for no pair where a verdict gives none."""


async def decide(judges: Sequence[Judge], case: Case) -> Verdict:
    """Ask judges in order; each further one only about the ties of those before it.

    If one finds all candidates alike, the next judges them all. If one finds several best or several worst candidates,
    the next names one among them. Ties that nobody breaks are broken at random. A judge whose request the endpoint
    refuses, for example because all candidates together exceed its context, leaves all of them tied.
    """
    verdict = await _decide(judges, case)
    if verdict.alike:
        # No judge prefers a candidate: the method continues with any of them, and there is no pair.
        verdict = replace(verdict, rejected=None)
    paired = verdict.chosen is not None and verdict.rejected is not None
    return verdict if paired or verdict.reason else replace(verdict, reason=NO_REASON)


async def _decide(judges: Sequence[Judge], case: Case) -> Verdict:
    """As `decide`, but a worst candidate is named also where no better one is, so that it can break a tie."""
    judge, *others = judges
    try:
        verdict = replace(await judge(case), judge=judge.name)
    except RequestRefused as refusal:
        reason = "the endpoint refused the judge's request"
        verdict = Verdict(alike=True, reason=reason, judge=judge.name, refusal=str(refusal))
    if not others:
        return verdict
    if verdict.alike:
        further = await _decide(others, case)
        return replace(
            _joined(verdict, further, range(len(case.candidates))),
            chosen=verdict.chosen if further.chosen is None else further.chosen,
            rejected=further.rejected,
            worse=further.worse,
            scores=further.scores or verdict.scores,
            noise=further.noise if further.scores else verdict.noise,
            reason=further.reason,
            alike=further.alike or further.chosen is None,
        )
    best, worst = verdict.best, verdict.worst
    if len(best) > 1:
        further = await _decide(others, case.among(best))
        chosen = verdict.chosen if further.chosen is None else best[further.chosen]
        verdict = replace(_joined(verdict, further, best), chosen=chosen)
    if len(worst) > 1 and case.rules.rejected != "every":
        further = await _decide(others, case.among(worst))
        rejected = verdict.rejected if further.rejected is None else worst[further.rejected]
        verdict = replace(_joined(verdict, further, worst), rejected=rejected)
    return verdict


def _joined(verdict: Verdict, further: Verdict, members: Sequence[int]) -> Verdict:
    """The verdict with the replies of a further judge, which saw `members` of the candidates."""
    names = verdict.judge.split(", ")
    return replace(
        verdict,
        replies=verdict.replies + further.replies,
        orders=verdict.orders + [[members[index] for index in order] for order in further.orders],
        agreements=verdict.agreements + further.agreements,
        unreadable=verdict.unreadable + further.unreadable,
        refusal=verdict.refusal or further.refusal,
        judge=", ".join(dict.fromkeys([*names, *further.judge.split(", ")])),
    )
