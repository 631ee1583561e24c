"""A candidate is worth what becomes of it."""

import asyncio
from dataclasses import replace

from data_construction.judges.case import Case, Verdict, by_score
from data_construction.judges.metric import answer_score


async def outcome(case: Case) -> Verdict:
    """Roll each candidate forward to the method's answer and rank by that answer's score.

    The answers become the verdict's `replies`.
    """
    answers = await asyncio.gather(*map(case.finish, case.candidates))
    verdict = by_score(case, [None if answer is None else answer_score(case, answer) for answer in answers])
    return replace(verdict, replies=[answer or "" for answer in answers])
