"""An index of this machine, made by `notewriter index`."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from notewriter.ground.config import choose
from notewriter.ground.records import Passage
from notewriter.retrieval.bm25 import BM25
from notewriter.retrieval.dense import Dense
from notewriter.retrieval.index_folder import existing_manifest, index_fingerprint
from notewriter.retrieval.protocol import BatchIndex, Index, OpenSource, Scope, Source, SourceOptions
from notewriter.retrieval.sources.batching import Batching

MOST_QUERIES = 64
"""Queries searched for at once at most by an index that takes several."""


def open_index(path: str | Path) -> Index:
    """Open an index of any kind.

    Raises:
        UserError: the folder contains no index or one that this version cannot read.
    """
    kinds: dict[str, type[BM25 | Dense]] = {"bm25": BM25, "dense": Dense}
    return choose(f"kind of index in {path}", str(existing_manifest(path).get("kind")), kinds)(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions(SourceOptions):
    """`index`: a folder made by `notewriter index`."""

    index: str


class Local(OpenSource):
    """An index in this process. Searches run in threads, so that they do not block the event loop.

    A thread per core, or one for an index that takes several queries at once and uses all cores itself.
    """

    def __init__(self, index: Index, name: str, corpus: str) -> None:
        self.name, self.corpus = name, corpus
        self._index = index
        self._batches = Batching(self._search_all, MOST_QUERIES, 1) if isinstance(index, BatchIndex) else None
        self._threads = ThreadPoolExecutor(1 if self._batches else os.cpu_count(), thread_name_prefix="search")

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first."""
        if self._batches:
            return await self._batches.search(query, top_k, scope)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._index.search, query, top_k, scope)

    async def close(self) -> None:
        """End the threads."""
        if self._batches:
            self._batches.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _search_all(self, queries: list[str], top_k: int, scope: Scope | None) -> list[list[Passage]]:
        assert isinstance(self._index, BatchIndex)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._index.search_all, queries, top_k, scope)


def _open(options: IndexOptions) -> Local:
    source = existing_manifest(options.index).get("source")
    return Local(open_index(options.index), options.index, source if isinstance(source, str) else "")


SOURCE = Source(
    is_local=True, options=IndexOptions, open=_open, identity=lambda options: index_fingerprint(options.index)
)
