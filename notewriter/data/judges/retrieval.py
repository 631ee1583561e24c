"""The judge `retrieval`: queries are scored by the supporting passages that they find."""

import asyncio

from notewriter.data.judges.case import Case, Verdict, by_score, judge
from notewriter.evaluation.evidence import reciprocal_rank


@judge("query")
async def retrieval(case: Case) -> Verdict:
    """Rank queries by the mean reciprocal rank of the supporting passages, without a model.

    The query sent is the one that the method makes of the candidate (`deepnote` appends the question).
    """
    scores: list[float | None] = []
    for query in await asyncio.gather(*map(case.next_query, case.candidates)):
        if query is None:
            scores.append(None)
            continue
        passages = await case.search(query, 10)
        ranks = [reciprocal_rank(gold, passages) for gold in case.question.supporting_ids]
        scores.append(sum(ranks) / len(ranks) if ranks else 0.0)
    return by_score(case, scores)
