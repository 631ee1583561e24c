"""The servers of an endpoint: the choice of one for a request, and the restart of those of this process."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openai

COOLDOWN = 10.0
"""Seconds for which a failed replica is avoided while another one is up."""


@dataclass
class Replica:
    """A server of an endpoint; avoided before `down_until` (monotonic clock) if another one is up."""

    base_url: str
    api: openai.AsyncOpenAI
    down_until: float = 0.0

    def avoid(self) -> None:
        """Avoid it for a while, since a request to it has failed."""
        self.down_until = time.monotonic() + COOLDOWN


class Replicas:
    """The servers of an endpoint.

    `revive` has a function for each of them that this process started, which restarts it if it has died.
    """

    def __init__(self, replicas: Sequence[Replica], revive: Sequence[Callable[[], None]] = ()) -> None:
        self.all = replicas
        self._revivals: dict[Callable[[], None], asyncio.Future[None] | None] = dict.fromkeys(revive)
        # Restarts take minutes, in which the event loop's own threads have other work.
        self._threads = ThreadPoolExecutor(len(revive), thread_name_prefix="revive") if revive else None

    def of(self, affinity: str) -> Replica:
        """The replica of an affinity, or the next one while that one is down."""
        now = time.monotonic()
        # Rendezvous hashing: adding or losing a replica moves no other replica's questions.
        return min(
            self.all,
            key=lambda each: (each.down_until > now, hashlib.sha256(f"{affinity} {each.base_url}".encode()).digest()),
        )

    async def until_one_is_alive(self) -> None:
        """Restart servers of this process that have died, each in one call at a time, and wait for the first.

        Raises:
            UserError: one does not come up again.
        """
        if not self._revivals:
            return
        for revive, revival in self._revivals.items():
            if revival is not None and revival.done():
                revival.result()
            if revival is None or revival.done():
                self._revivals[revive] = asyncio.get_running_loop().run_in_executor(self._threads, revive)
        done, _ = await asyncio.wait(filter(None, self._revivals.values()), return_when=asyncio.FIRST_COMPLETED)
        for revival in done:
            revival.result()

    async def close(self) -> None:
        """Close the connections; a server that is being restarted is not waited for."""
        await asyncio.gather(*(replica.api.close() for replica in self.all))
        revivals = list(filter(None, self._revivals.values()))
        for revival in revivals:
            revival.cancel()
        await asyncio.gather(*revivals, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False)
