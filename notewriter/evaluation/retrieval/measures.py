"""Measures of a ranking, given the ids of the passages that a question needs (binary relevance)."""

import math
from collections.abc import Collection, Sequence


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """The share of the gold passages among the first `k`."""
    return len(set(ranking[:k]) & set(gold)) / len(set(gold))


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """1 / rank of the first gold passage; 0 if there is none (Voorhees, TREC-8 question answering track, 1999)."""
    return next((1 / rank for rank, id in enumerate(ranking, start=1) if id in gold), 0.0)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain at `k`, with the discount 1 / log2(1 + rank).

    Jaervelin and Kekaelaeinen (TOIS 2002) in the form of trec_eval: divided by the gain of a ranking that has the gold
    passages first.
    """
    found = dict.fromkeys(ranking[:k])
    gain = sum(1 / math.log2(1 + rank) for rank, id in enumerate(found, start=1) if id in gold)
    return gain / sum(1 / math.log2(1 + rank) for rank in range(1, min(len(set(gold)), k) + 1))


def measures(ranking: Sequence[str], gold: Collection[str], depths: Sequence[int]) -> dict[str, float]:
    """All measures of a ranking, which is as deep as the last of the depths."""
    return {
        **{f"recall@{k}": recall(ranking, gold, k) for k in depths},
        f"MRR@{max(depths)}": reciprocal_rank(ranking[: max(depths)], gold),
        **{f"nDCG@{k}": ndcg(ranking, gold, k) for k in depths},
    }
