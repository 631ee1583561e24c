"""What a chain is made of: sources that find passages, and steps that reorder or drop them."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from notewriter.records import Passage
from notewriter.retrieval import Retriever

Scope = Collection[str]
"""The ids or titles of the passages that a search is restricted to."""

DEEPEST = 10_000
"""Passages fetched at most to find those of a scope in a source that cannot restrict its searches itself."""


class Source(Protocol):
    """Finds passages; used by the tasks of one event loop.

    `name` is how traces and errors call it; `corpus` identifies its corpus, empty if unknown.
    """

    name: str
    corpus: str

    async def check(self) -> None:
        """Check that it can be searched, before any work is done."""
        ...

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first."""
        ...

    async def close(self) -> None:
        """Release connections and threads."""
        ...


class Step(Protocol):
    """Reorders or drops passages.

    `name` is how traces and errors call it; `candidates` is how many passages it needs to return `top_k`.
    """

    name: str

    def candidates(self, top_k: int) -> int:
        """How many passages it needs in order to return `top_k`."""
        ...

    async def check(self) -> None:
        """Check that it can be used, before any work is done."""
        ...

    async def apply(self, query: str, passages: list[Passage]) -> list[Passage]:
        """The passages to go on with, best first."""
        ...

    async def close(self) -> None:
        """Release connections and threads."""
        ...


class Local:
    """An index in this process. Searches run in a thread per core, so that they do not block the event loop."""

    def __init__(self, retriever: Retriever, name: str, corpus: str) -> None:
        self.name, self.corpus = name, corpus
        self._retriever = retriever
        self._threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="search")

    async def check(self) -> None:
        """An index is checked when it is opened."""

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first."""

        async def find(count: int) -> list[Passage]:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._retriever.search, query, count)

        return await within(scope, find, top_k)

    async def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def within(
    scope: Scope | None, find: Callable[[int], Awaitable[list[Passage]]], top_k: int, deepest: int = DEEPEST
) -> list[Passage]:
    """The first `top_k` passages of a scope, found by fetching more and more: `find` takes the number to fetch.

    At most `deepest` passages are fetched.
    """
    if scope is None:
        return await find(top_k)
    count = min(deepest, max(64, 4 * top_k))
    while True:
        found = await find(count)
        inside = [passage for passage in found if passage.id in scope or passage.title in scope]
        if len(inside) >= top_k or len(found) < count or count >= deepest:
            return inside[:top_k]
        count = min(deepest, 8 * count)
