"""Batching of queries: those that wait for a search are searched for together."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

from notewriter.ground.records import Passage
from notewriter.retrieval.protocol import Scope


class _Query(NamedTuple):
    query: str
    top_k: int
    scope: Scope | None
    result: asyncio.Future[list[Passage]]


class Batching:
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
        result: asyncio.Future[list[Passage]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Query(query, top_k, scope, result))
        if len(self._calls) < self._at_once:
            self._calls.add(asyncio.create_task(self._call()))
        return await result

    def close(self) -> None:
        """Cancel the searches under way."""
        for call in self._calls:
            call.cancel()

    async def _call(self) -> None:
        """Search for the waiting queries until none waits."""
        while self._waiting:
            first = self._waiting.popleft()
            batch = [first]
            while self._waiting and len(batch) < self._most and self._waiting[0][1:3] == (first.top_k, first.scope):
                batch.append(self._waiting.popleft())
            batch = [each for each in batch if not each.result.done()]
            if not batch:
                continue
            try:
                results = await self._run([each.query for each in batch], first.top_k, first.scope)
            except Exception as error:
                for each in batch:
                    if not each.result.done():
                        each.result.set_exception(error)
            else:
                for each, passages in zip(batch, results, strict=True):
                    if not each.result.done():
                        each.result.set_result(passages[: each.top_k])
        # Before anything else runs: a query that comes from now on starts a call of its own.
        self._calls.discard(cast(asyncio.Task[None], asyncio.current_task()))
