"""All documents of a question in their order, whatever the query, for methods that read a whole text."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import Scope, read_manifest
from notewriter.retrieval.passages import Passages


@dataclass(frozen=True, slots=True)
class DocumentsPart:
    """`documents`: an index whose passages are read in the order in which `within` lists them, or that of the corpus.

    `weight` is that of its order in the fusion with other sources.
    """

    documents: str
    weight: Annotated[float, Interval(gt=0)] = 1.0


class Documents:
    """The passages of an index in order; nothing is ranked.

    Raises:
        UserError: the folder contains no index, or one that is damaged.
    """

    def __init__(self, part: DocumentsPart) -> None:
        manifest = read_manifest(part.documents)
        if manifest is None:
            raise UserError(
                f"{part.documents}: contains no index; build one with `notewriter index --index {part.documents}`"
            )
        self.name, self.corpus = part.documents, str(manifest.get("source", ""))
        self._passages = Passages(Path(part.documents))

    async def check(self) -> None:
        """An index is checked when it is opened."""

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """The first `top_k` passages whose ids are in the scope, in its order, or else of the whole corpus.

        Raises:
            UserError: no passage has an id of the scope.
        """
        return await asyncio.to_thread(self._read, top_k, scope)

    def _read(self, top_k: int, scope: Scope | None) -> list[Passage]:
        if scope is None:
            return self._passages.first(top_k)
        positions = [position for id in scope if (position := self._passages.find(id)) is not None]
        if not positions:
            raise UserError(f"{self.name}: has none of the question's documents; list ids of its passages in `within`")
        return [self._passages[position] for position in positions[:top_k]]

    async def close(self) -> None:
        """Nothing is open."""
