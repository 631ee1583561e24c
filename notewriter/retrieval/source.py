"""What a chain is made of: sources that find passages, and steps that reorder or drop them."""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, cast

from notewriter.ground.records import Passage
from notewriter.retrieval import BatchIndex, Index, Scope

MOST_QUERIES = 64
"""Queries searched for at once at most by an index that takes several."""

DEEPEST = 10_000
"""Passages fetched at most to find those of a scope in a source that cannot restrict its searches itself."""


def address(_: str) -> str:
    """For `effect`: an address has none. What is there is compared by its contents."""
    return ""


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


class _Query(NamedTuple):
    query: str
    top_k: int
    scope: Scope | None
    found: asyncio.Future[list[Passage]]


class Batches:
    """Puts queries that wait into one call if they ask for the same number of passages and the same scope.

    Args:
        run: the call; takes queries, the number of passages and the scope.
        most: queries in a call at most.
        at_once: calls at once; further queries wait.
    """

    def __init__(
        self, run: Callable[[list[str], int, Scope | None], Awaitable[list[list[Passage]]]], most: int, at_once: int
    ) -> None:
        self._run, self._most, self._at_once = run, most, at_once
        self._waiting: deque[_Query] = deque()
        self._calls: set[asyncio.Task[None]] = set()

    async def search(self, query: str, top_k: int, scope: Scope | None) -> list[Passage]:
        """At most `top_k` passages of the scope; raises what the call raises."""
        found: asyncio.Future[list[Passage]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Query(query, top_k, scope, found))
        if len(self._calls) < self._at_once:
            self._calls.add(asyncio.create_task(self._call()))
        return await found

    def close(self) -> None:
        """Cancel what is under way."""
        for call in self._calls:
            call.cancel()

    async def _call(self) -> None:
        """Search for what is waiting until nothing is."""
        while self._waiting:
            first = self._waiting.popleft()
            batch = [first]
            while self._waiting and len(batch) < self._most and self._waiting[0][1:3] == (first.top_k, first.scope):
                batch.append(self._waiting.popleft())
            batch = [each for each in batch if not each.found.done()]
            if not batch:
                continue
            try:
                results = await self._run([each.query for each in batch], first.top_k, first.scope)
            except Exception as error:
                for each in batch:
                    if not each.found.done():
                        each.found.set_exception(error)
            else:
                for each, passages in zip(batch, results, strict=True):
                    if not each.found.done():
                        each.found.set_result(passages[: each.top_k])
        # Before anything else runs: a query that comes from now on starts a call of its own.
        self._calls.discard(cast(asyncio.Task[None], asyncio.current_task()))


class Local:
    """An index in this process. Searches run in threads, so that they do not block the event loop.

    A thread per core, or one for an index that takes several queries at once and uses all cores itself.
    """

    def __init__(self, index: Index, name: str, corpus: str) -> None:
        self.name, self.corpus = name, corpus
        self._index = index
        self._batches = Batches(self._search_all, MOST_QUERIES, 1) if isinstance(index, BatchIndex) else None
        self._threads = ThreadPoolExecutor(1 if self._batches else os.cpu_count(), thread_name_prefix="search")

    async def check(self) -> None:
        """An index is checked when it is opened."""

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
