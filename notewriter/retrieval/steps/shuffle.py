"""Shuffling the sentences of each passage: evidence can no longer be found by its place."""

import random
from dataclasses import dataclass, replace
from typing import Literal

from notewriter.ground.options import option
from notewriter.ground.records import Passage
from notewriter.ground.text import sentences_in
from notewriter.retrieval.protocol import OpenStep, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleOptions:
    """`shuffle`: the parts of a passage that are put in a random order, its `sentences`."""

    shuffle: Literal["sentences"]
    seed: int = option(0, "seed of the orders, with the query and the passage's id")


class Shuffle(OpenStep):
    """Puts the sentences of each passage in an order that is always the same for a query, a passage and a seed.

    The first query of a method is its question, so a question finds a passage in the same order in every run.
    """

    def __init__(self, options: ShuffleOptions) -> None:
        self.name = f"shuffle {options.shuffle}"
        self._seed = options.seed

    async def apply(self, query: str, passages: list[Passage], top_k: int) -> list[Passage]:
        """The passages in their order, each with its sentences in another one, separated by spaces."""
        return [shuffled(query, passage, self._seed) for passage in passages]


def shuffled(query: str, passage: Passage, seed: int) -> Passage:
    """A passage with its sentences in the order that a query finds them in."""
    sentences = sentences_in(passage.text)
    random.Random(f"{seed} {passage.id} {query}").shuffle(sentences)
    return replace(passage, text=" ".join(sentences))


STEP = Step(is_local=True, options=ShuffleOptions, open=lambda options, cache: Shuffle(options))
