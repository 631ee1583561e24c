"""Merging rankings."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from notewriter.ground.records import Passage

RANK_CONSTANT = 60
"""Added to every rank, so that the top of one ranking does not outweigh the rest (Cormack et al. 2009: 60)."""

Item = TypeVar("Item")


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[Item]], key: Callable[[Item], Hashable], weights: Sequence[float] = ()
) -> list[Item]:
    """All items of the rankings, best first by the sum of weight / (60 + rank).

    Cormack, Clarke and Buettcher (SIGIR 2009), whose weights are 1. Items with the same key count as one, represented
    by the first. Ties are broken by the order of the rankings.
    """
    items: dict[Hashable, Item] = {}
    scores: dict[Hashable, float] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for item in ranking:
            items.setdefault(key(item), item)
        for rank, each in enumerate(dict.fromkeys(map(key, ranking)), start=1):
            scores[each] = scores.get(each, 0.0) + weight / (RANK_CONSTANT + rank)
    return [items[each] for each in sorted(scores, key=lambda each: -scores[each])]


def fuse(
    rankings: Sequence[Sequence[Passage]], corpora: Sequence[str] = (), weights: Sequence[float] = ()
) -> list[Passage]:
    """Merge rankings of several corpora by reciprocal rank, since scores of different corpora cannot be compared.

    Passages with the same title and text are merged. Ids of the first corpus are unchanged, so that a question's
    supporting passages still match; ids of the second get the prefix `2:`, and so on. Rankings of the same corpus,
    such as those of a BM25 and a dense index, share their ids: `corpora` identifies the corpus of each ranking, with
    an empty string if unknown.
    """
    corpora = [corpus or str(number) for number, corpus in enumerate(corpora or [""] * len(rankings))]
    numbers = {corpus: number for number, corpus in enumerate(dict.fromkeys(corpora))}
    prefixes = tuple(f"{number}:" for number in range(1, len(numbers) + 1))

    def unique(number: int, id: str) -> str:
        # An id of the first corpus that looks prefixed gets its own prefix.
        return id if number == 0 and not id.startswith(prefixes) else f"{prefixes[number]}{id}"

    renamed = [
        [Passage(unique(numbers[corpus], passage.id), passage.title, passage.text) for passage in ranking]
        for corpus, ranking in zip(corpora, rankings, strict=True)
    ]
    return reciprocal_rank_fusion(renamed, lambda passage: (passage.title, passage.text), weights)
