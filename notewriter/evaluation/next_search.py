"""What a note is worth to the next search: the note and the question as the query, for passages not seen yet."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from statistics import fmean

from notewriter.ground.records import Passage, Question

Search = Callable[[str, int], Awaitable[Sequence[Passage]]]
"""The best passages for a query, best first, at most as many as asked for."""


async def further_passages(
    question: Question, note: str, seen: Collection[str], k: int, search: Search, words: int | None = None
) -> list[Passage]:
    """The `k` best passages that have not been seen, for the first `words` words of a note and the question.

    Args:
        question: the question.
        note: the note; empty for a search with the question alone.
        seen: the ids of the passages that were retrieved before.
        k: how many passages.
        search: the index.
        words: how many words of the note go into the query; None for all.
    """
    query = " ".join([*note.split()[:words], question.question])
    found = await search(query, k + len(seen))
    return [passage for passage in found if passage.id not in seen][:k]


def missing(question: Question, seen: Collection[str]) -> list[str]:
    """The ids of the supporting passages that have not been seen."""
    return [passage for passage in question.supporting_ids if passage not in seen]


def reciprocal_rank_of_missing(question: Question, seen: Collection[str], further: Sequence[Passage]) -> float | None:
    """The mean reciprocal rank, in [0, 1], of the supporting passages that are missing among further ones.

    One that is not among them counts 0; None if none is missing.
    """
    ids = [passage.id for passage in further]
    ranks = [1 / (ids.index(passage) + 1) if passage in ids else 0.0 for passage in missing(question, seen)]
    return fmean(ranks) if ranks else None
