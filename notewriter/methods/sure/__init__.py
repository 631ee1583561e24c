"""SuRe: summarise the passages for each candidate answer and keep the candidate with the best summary."""

import itertools
import re

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import parse_lines, parse_verdict
from notewriter.rollouts.rollout import Rollout

CANDIDATES = Stage("sure/candidates", "answer", rehearsal="{query}\n{query} too\n")
SUMMARIZE = Stage("sure/summarize", "notes", "note")
VALIDATE = Stage("sure/validate", "judge", rehearsal="True.")
RANK = Stage("sure/rank", "judge", rehearsal="1.")


async def sure(
    question: str, rollout: Rollout, *, top_k: int = 10, max_candidates: int = 2, answer_style: str = "short"
) -> str:
    """Answer with the candidate whose summary is valid and preferred (Kim et al. 2024, section 3).

    A candidate's score is its validity (1 if the model says that the summary supports it, else 0) plus its ranking:
    the number of other candidates with a less informative summary, with half a point for a tie. Each pair of
    summaries is compared in both orders. Of equal scores the earlier candidate wins. With fewer than two candidates
    there is nothing to choose, and the note is empty. Counts `unreadable_verdicts`.

    Args:
        top_k: passages to summarise (the paper: N = 10).
        max_candidates: maximum number of candidate answers (the paper: K = 2).
    """
    rollout.keep_note("")
    passages = await rollout.retrieve(question, top_k)
    reply = await rollout.generate(
        CANDIDATES, question=question, passages=passages, max_candidates=max_candidates, answer_style=answer_style
    )
    candidates = parse_lines(reply)[:max_candidates]
    if len(candidates) < 2:
        return candidates[0] if candidates else ""

    summaries = [
        await rollout.generate(SUMMARIZE, question=question, passages=passages, candidate=candidate)
        for candidate in candidates
    ]
    scores = [
        await _validity(question, candidate, summary, rollout)
        for candidate, summary in zip(candidates, summaries, strict=True)
    ]
    for one, other in itertools.combinations(range(len(candidates)), 2):
        preference = await _preference(question, summaries[one], summaries[other], rollout)
        scores[one] += preference
        scores[other] += 1 - preference

    best = scores.index(max(scores))
    rollout.keep_note(summaries[best])
    return candidates[best]


async def _validity(question: str, candidate: str, summary: str, rollout: Rollout) -> float:
    """1 if the model says that the summary supports the candidate, else 0."""
    reply = await rollout.generate(VALIDATE, question=question, candidate=candidate, summary=summary)
    verdict = parse_verdict(reply, ("true", "false"))
    if verdict is None:
        rollout.count("unreadable_verdicts")
    return float(verdict == "true")


async def _preference(question: str, one: str, other: str, rollout: Rollout) -> float:
    """1 if the first summary is more informative, 0 if the second is, 0.5 for a tie."""
    votes = {"1": 1, "2": -1, None: 0}
    lead = 0
    for sign, summaries in ((1, [one, other]), (-1, [other, one])):
        reply = await rollout.generate(RANK, question=question, summaries=summaries)
        numbers = set(re.findall(r"\b[12]\b", reply))
        # "Summary 1 tells more" has no other number.
        named = parse_verdict(reply, ("1", "2")) or (numbers.pop() if len(numbers) == 1 else None)
        if named is None:
            rollout.count("unreadable_verdicts")
        lead += sign * votes[named]
    return 0.5 if lead == 0 else float(lead > 0)


METHOD = Method(sure, (CANDIDATES, SUMMARIZE, VALIDATE, RANK))
