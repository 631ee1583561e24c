"""Dropping passages that repeat another one's text or title."""

from dataclasses import dataclass
from typing import Literal

from notewriter.ground.records import Passage
from notewriter.retrieval.protocol import OpenStep, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctOptions:
    """`distinct`: keep only the best passage of those with the same `text`, or the same `title`."""

    distinct: Literal["text", "title"]


class Distinct(OpenStep):
    """Drops all but the best passage of those that share text or title, ignoring case and white space."""

    def __init__(self, options: DistinctOptions) -> None:
        self.name = f"distinct {options.distinct}"
        self._field = options.distinct

    def candidates(self, top_k: int) -> int:
        """The number of passages that it needs to return `top_k`, if no more than half are dropped."""
        return 2 * top_k

    async def apply(self, query: str, passages: list[Passage], top_k: int) -> list[Passage]:
        """The first passage of each text or title."""
        first: dict[str | Passage, Passage] = {}
        for passage in passages:
            # Passages without a title, or hits without a snippet, do not repeat each other.
            first.setdefault(" ".join(getattr(passage, self._field).casefold().split()) or passage, passage)
        return list(first.values())


STEP = Step(is_local=True, options=DistinctOptions, open=lambda options, cache: Distinct(options))
