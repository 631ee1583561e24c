"""All documents of a question in their order, whatever the query, for methods that read a whole text."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval.index_folder import existing_manifest, index_fingerprint
from notewriter.retrieval.passages import Passages
from notewriter.retrieval.protocol import OpenSource, Scope, Source, SourceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsOptions(SourceOptions):
    """`documents`: an index whose passages are read in the order in which `within` lists them, or that of the corpus.

    The weight is that of this order in the fusion with other sources.
    """

    documents: str


class Documents(OpenSource):
    """The passages of an index in order; nothing is ranked.

    Raises:
        UserError: the folder contains no index, or one that is damaged.
    """

    def __init__(self, options: DocumentsOptions) -> None:
        manifest = existing_manifest(options.documents)
        self.name, self.corpus = options.documents, str(manifest.get("source", ""))
        self._passages = Passages(Path(options.documents))

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """The first `top_k` passages whose ids are in the scope, in its order, or else of the whole corpus.

        Raises:
            UserError: no passage has an id of the scope.
        """
        return await asyncio.to_thread(self._read, top_k, scope)

    def _read(self, top_k: int, scope: Scope | None) -> list[Passage]:
        if scope is None:
            return [self._passages[position] for position in range(min(top_k, len(self._passages)))]
        positions = [position for id in scope if (position := self._passages.find(id)) is not None]
        if not positions:
            raise UserError(f"{self.name}: has none of the question's documents; list ids of its passages in `within`")
        return [self._passages[position] for position in positions[:top_k]]


SOURCE = Source(
    is_local=True,
    options=DocumentsOptions,
    open=Documents,
    identity=lambda options: index_fingerprint(options.documents),
)
