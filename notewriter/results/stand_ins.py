"""Made-up passages in place of an index that is not there yet, for estimates of what a table costs."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from notewriter.ground.records import Passage
from notewriter.retrieval.protocol import OpenSource, Scope, Source, SourceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInOptions(SourceOptions):
    """`words`: the length of a passage; `most`: how many there are at most, however many are asked for."""

    words: Annotated[int, Interval(ge=1)]
    most: Annotated[int, Interval(ge=1)]


class StandIn(OpenSource):
    """Passages of one length, whatever the query."""

    def __init__(self, options: StandInOptions) -> None:
        self.name, self.corpus, self._options = "stand-in", "stand-in", options

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """As many as are asked for and there are."""
        text = " ".join(["of"] * self._options.words)
        # Other passages for other queries: methods leave out what they have read.
        names = (f"{query} {number}" for number in range(min(top_k, self._options.most)))
        return [Passage(id=name, title="Page", text=text) for name in names]


words = Source(options=StandInOptions, open=StandIn)

NAME = f"{__name__}:words"
"""What a part of a retriever is called that finds them."""
