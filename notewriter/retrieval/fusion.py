"""Merging rankings, and searching several indexes as one."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from notewriter.records import Passage
from notewriter.retrieval import Retriever

RANK_CONSTANT = 60
"""Added to every rank, so that the top of one ranking does not outweigh the rest (Cormack et al. 2009: 60)."""

Item = TypeVar("Item")


def reciprocal_rank_fusion(rankings: Sequence[Sequence[Item]], key: Callable[[Item], Hashable]) -> list[Item]:
    """All items of the rankings, best first by the sum of 1 / (60 + rank) (Cormack, Clarke and Buettcher, SIGIR 2009).

    Items with the same key count as one, represented by the first. Ties are broken by the order of the rankings.
    """
    items: dict[Hashable, Item] = {}
    scores: dict[Hashable, float] = {}
    for ranking in rankings:
        for item in ranking:
            items.setdefault(key(item), item)
        for rank, each in enumerate(dict.fromkeys(map(key, ranking)), start=1):
            scores[each] = scores.get(each, 0.0) + 1 / (RANK_CONSTANT + rank)
    return [items[each] for each in sorted(scores, key=lambda each: -scores[each])]


class Sources:
    """Several indexes searched as one; implements `Retriever`.

    Reciprocal rank fusion merges the `top_k` passages of each index, since scores of different corpora cannot be
    compared but ranks can. Passages with the same title and text are merged. Ids of the first index are unchanged, so
    that a question's supporting passages still match; ids of the second get the prefix `2:`, and so on. Indexes of
    the same corpus, such as a BM25 and a dense one, share their ids: `corpora` identifies the corpus of each index,
    with an empty string if unknown.
    """

    def __init__(self, retrievers: Sequence[Retriever], corpora: Sequence[str] = ()) -> None:
        self._retrievers = retrievers
        self._prefixes = tuple(f"{number}:" for number in range(1, len(retrievers) + 1))
        corpora = [corpus or str(number) for number, corpus in enumerate(corpora or [""] * len(retrievers))]
        self._numbers = [corpora.index(corpus) for corpus in corpora]

    def search(self, query: str, top_k: int) -> list[Passage]:
        """The `top_k` passages of the fused ranking, best first."""
        rankings = [
            [Passage(self._unique(number, passage.id), passage.title, passage.text) for passage in found]
            for number, found in zip(
                self._numbers, (retriever.search(query, top_k) for retriever in self._retrievers), strict=True
            )
        ]
        return reciprocal_rank_fusion(rankings, lambda passage: (passage.title, passage.text))[:top_k]

    def _unique(self, number: int, id: str) -> str:
        # An id of the first index that looks prefixed gets its own prefix.
        return id if number == 0 and not id.startswith(self._prefixes) else f"{self._prefixes[number]}{id}"
