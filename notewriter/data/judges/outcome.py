"""The judge `outcome`: a candidate is scored by the answer that the method reaches from it."""

import asyncio
from dataclasses import replace

from notewriter.data.judges.case import Case, Verdict, by_mean, judge
from notewriter.data.judges.metric import answer_score


@judge()
async def outcome(case: Case) -> Verdict:
    """Roll each candidate forward to the method's answer, `continuations` times, and rank by the mean score.

    With several continuations, a difference within their noise makes no pair (`by_score`). The answers become the
    verdict's `replies`, those of one candidate in succession.
    """
    count = case.rules.continuations
    answers = await asyncio.gather(
        *(case.finish(candidate, number) for candidate in case.candidates for number in range(count))
    )
    scores = [None if answer is None else answer_score(case, answer) for answer in answers]
    verdict = by_mean(case, [scores[start : start + count] for start in range(0, len(scores), count)])
    return replace(verdict, replies=[answer or "" for answer in answers])
