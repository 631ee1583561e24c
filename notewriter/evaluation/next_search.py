"""The worth of a note to the next search: the note and the question as the query, for passages not seen yet.

A note that names the things to which the passages at hand lead finds the rest of the evidence; a search with the
question alone often does not.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.evaluation.evidence import reciprocal_rank
from notewriter.evaluation.metrics.metric import Metric
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import first_words, is_yes_no, normalise
from notewriter.ground.typed import shown
from notewriter.models.checkpoint import without_hub
from notewriter.retrieval.chain import Chain, Part, find, only_local, parts_of

logger = logging.getLogger(__name__)

FURTHER, WORDS = 3, 40
"""Passages that the next search adds, and the words of a note that go into its query, unless others are given."""

METRICS = (
    Metric("next_has_answer", "Gold answer after the next search", "Share of questions whose gold answer was found."),
    Metric("next_recall", "Gold passages after the next search", "Share of the gold passages among all that is found."),
)
"""The metrics that `next_search_scores` returns."""

Search = Callable[[str, int], Awaitable[Sequence[Passage]]]
"""The best passages for a query, best first, at most as many as asked for."""


class Noted(NamedTuple):
    """A question, the passages that were found for it before, and a note written from them."""

    question: Question
    passages: Iterable[Passage]
    note: str


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
    query = f"{first_words(note, words)} {question.question}".lstrip()
    found = await search(query, k + len(seen))
    return [passage for passage in found if passage.id not in seen][:k]


def missing(question: Question, seen: Mapping[str, str]) -> list[str]:
    """The supporting passages that have not been seen, by id or by title; `seen` has the titles of passages by id."""
    names = {*seen, *seen.values()}
    return [gold for gold in question.supporting_ids if gold not in names]


def reciprocal_rank_of_missing(question: Question, seen: Mapping[str, str], further: Sequence[Passage]) -> float | None:
    """The mean reciprocal rank, in [0, 1], of the supporting passages that are missing among further ones.

    One that is not among them counts 0; None if none is missing.
    """
    ranks = [reciprocal_rank(gold, further) for gold in missing(question, seen)]
    return fmean(ranks) if ranks else None


def next_search_scores(question: Question, passages: Sequence[Passage]) -> dict[str, float]:
    """The scores of all passages together, those found before and those of the next search, each value in [0, 1].

    Returns:
        `next_has_answer`: 1.0 if a gold answer stands in the title or text of one of them as whole words, in SQuAD's
            normalisation. Left out for yes-no questions, whose answer stands nowhere.
        `next_recall`: the share of the supporting passages, by id, or by title where the benchmark's file has no text
            for them. Left out where these are not known.
    """
    scores = {}
    answers = [answer for answer in map(normalise, question.answers) if answer]
    if answers and not is_yes_no(question.answers):
        texts = [f" {normalise(f'{passage.title} {passage.text}')} " for passage in passages]
        scores["next_has_answer"] = float(any(f" {answer} " in text for answer in answers for text in texts))
    if golds := question.supporting_ids:
        names = {name for passage in passages for name in (passage.id, passage.title)}
        scores["next_recall"] = sum(gold in names for gold in golds) / len(golds)
    return scores


async def scores_of(
    noted: Iterable[Noted], retriever: Chain, *, k: int = FURTHER, words: int | None = WORDS, fresh: bool = True
) -> dict[str, dict[str, float]]:
    """The `next_search_scores` of notes: question id -> metric -> value.

    Args:
        noted: the notes with their passages. An empty note searches with the question alone.
        retriever: the open chain to search: that of the run that found the passages, or one over more passages.
        k: how many further passages are retrieved.
        words: how many words of each note go into the query; None for all.
        fresh: whether the further passages are the best of those not seen yet. Otherwise they are the best ones, as
            methods search, and a note that repeats its passages finds these again.

    Raises:
        UserError: a search fails.
    """

    async def one(each: Noted) -> dict[str, float]:
        async def search(query: str, top_k: int) -> list[Passage]:
            return (await find(retriever, query, top_k, each.question)).passages

        seen = {passage.id for passage in each.passages} if fresh else ()
        further = await further_passages(each.question, each.note, seen, k, search, words)
        return next_search_scores(each.question, [*each.passages, *further])

    notes = list(noted)
    scores = await asyncio.gather(*map(one, notes))
    return {each.question.id: score for each, score in zip(notes, scores, strict=True)}


@contextlib.asynccontextmanager
async def searched_again(run: Path, own: Sequence[Part] = ()) -> AsyncIterator[Chain]:
    """The open retriever for the notes of a finished run: one's own, or the run's local indexes.

    What only the run's folder names contacts nothing: no server, and of models what this machine has.

    Args:
        run: the run folder.
        own: the parts of the retriever that a user names; empty for the run's.

    Raises:
        UserError: the run has no retriever, one that is not local, or one that cannot be opened any more.
    """
    with contextlib.nullcontext() if own else without_hub():
        chain = Chain(own or _recorded(run))
        try:
            yield chain
        finally:
            await chain.close()


def _recorded(run: Path) -> list[Part]:
    config = read_config(run)
    try:
        parts = parts_of(config.get("index"), config.get("retriever"))
        if not parts:
            raise UserError("the run retrieved nothing; name one with --index or --retriever")
        parts = only_local(parts)
    except UserError as error:
        raise UserError(f"{run / CONFIG}: {error}") from error
    logger.info("%s: searched again in %s, as its %s names it", run, " + ".join(map(shown, parts)), CONFIG)
    return parts
