"""The judge `next_search`: notes are scored by the passages that a search with them finds."""

import asyncio

from notewriter.data.judges.case import Case, Verdict, by_score, judge
from notewriter.evaluation.next_search import further_passages, missing, reciprocal_rank_of_missing

DEPTH = 10
"""Further passages among which a missing one has a rank."""


@judge("note", "updated note")
async def next_search(case: Case) -> Verdict:
    """Rank notes by the mean reciprocal rank of the supporting passages that are still missing, without a model.

    They are searched for with the first `note_words` words of the note and the question, among the ten best passages
    that the method has not retrieved yet. Where no supporting passage is missing, there is no pair.
    """
    if not missing(case.question, case.seen):
        return Verdict(alike=True, reason="no supporting passage is missing")
    further = await asyncio.gather(
        *(
            further_passages(case.question, candidate, case.seen, DEPTH, case.search, case.rules.note_words)
            for candidate in case.candidates
        )
    )
    return by_score(case, [reciprocal_rank_of_missing(case.question, case.seen, passages) for passages in further])
