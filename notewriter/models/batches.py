"""Batch APIs of OpenAI's form: calls that can wait, at a discount, answered within a day.

Calls are gathered until none has arrived for a while, uploaded as a file, and answered from the batch's output. Each
call is recorded in the response cache before its batch is created. A killed run that is started again therefore fetches
the replies of the running batch instead of paying for them twice.

https://platform.openai.com/docs/guides/batch
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx2
import openai
from openai.types import Batch, FileObject

from notewriter.ground.errors import UserError
from notewriter.ground.terminal import escape_controls
from notewriter.models.cache import ResponseCache
from notewriter.models.completions import CUSTOM_ID
from notewriter.models.connection import UnreadableReply, connect, is_transient, reason, rejected_key, retrying

if TYPE_CHECKING:
    from notewriter.models.client import Endpoint

logger = logging.getLogger(__name__)

QUIET = 10.0
"""Seconds without a new call after which those gathered are submitted."""

MAX_REQUESTS, MAX_BYTES = 50_000, 150 * 10**6
"""The largest batch; OpenAI accepts 50,000 requests in 200 MB."""

POLL = 30.0
"""Seconds between two looks at a running batch."""

DAYS = 30
"""Days that a call may wait, over all its batches."""

Reply = TypeVar("Reply")

ENDED = ("completed", "failed", "expired", "cancelled")
RUNNING = ("validating", "in_progress", "finalizing", "cancelling")


class BatchedReply(NamedTuple):
    """The answer to a call: an HTTP status and a JSON body."""

    status: int
    body: Any


UNANSWERED = BatchedReply(408, {"error": {"message": "the batch ended without a reply to this request"}})
"""For calls that an ended batch left out; a timeout, after which the client asks again in another batch."""


class Batches(httpx2.AsyncBaseTransport):
    """A transport that sends an endpoint's chat requests through its batch API.

    Requests, replies, their checks and retries stay the same as for calls that are answered at once. `chat` sends
    requests this way; `api` manages files and batches.
    """

    def __init__(self, endpoint: "Endpoint", cache: ResponseCache) -> None:
        self.api = connect(endpoint.base_url, endpoint.timeout, endpoint.api_key_env)
        self.chat = connect(endpoint.base_url, DAYS * 86_400, endpoint.api_key_env, transport=self)
        self._endpoint, self._cache = endpoint, cache
        self._gathered: dict[str, str] = {}
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[str, asyncio.Future[BatchedReply]] = {}
        self._unasked: dict[str, BatchedReply] = {}  # outcomes of an earlier run's calls that this one has not made yet
        self._tasks: dict[str, asyncio.Task[None]] = {}  # what runs for a batch, by its input file or first call
        cache.execute("CREATE TABLE IF NOT EXISTS batched (key TEXT PRIMARY KEY, file TEXT NOT NULL, batch TEXT)")

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The reply to a chat request, when its batch has ended.

        Raises:
            UserError: the batch failed or was cancelled, or the API cannot be reached or used.
        """
        outcome = await self._answer(request.headers[CUSTOM_ID], json.loads(await request.aread()))
        return httpx2.Response(outcome.status, json=outcome.body)

    def forget(self, key: str) -> None:
        """Remove the record of a call, whose reply is stored or of no use."""
        self._cache.execute("DELETE FROM batched WHERE key = ?", (key,))

    async def close(self) -> None:
        """Stop waiting; batches go on at the server, and the next run fetches their replies."""
        if self._timer:
            self._timer.cancel()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.api.close()

    async def _answer(self, key: str, body: Any) -> BatchedReply:
        outcome = self._unasked.pop(key, None)
        if outcome is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            recorded = self._cache.execute("SELECT file, batch FROM batched WHERE key = ?", (key,))
            if recorded and recorded[0][0] not in self._tasks:
                file, batch = recorded[0]
                self._start(file, self._resume(file, batch))
            elif not recorded or self._tasks[recorded[0][0]].done():
                self._gather(key, body)
            try:
                outcome = await future
            finally:
                del self._waiting[key]
        if outcome.status != 200:
            self.forget(key)
        return outcome

    def _gather(self, key: str, body: Any) -> None:
        line = json.dumps({"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body})
        if self._bytes + len(line) > MAX_BYTES:
            self._submit()
        self._gathered[key] = line
        self._bytes += len(line) + 1
        if self._timer:
            self._timer.cancel()
        if len(self._gathered) >= MAX_REQUESTS:
            self._submit()
        else:
            self._timer = asyncio.get_running_loop().call_later(QUIET, self._submit)

    def _submit(self) -> None:
        lines, self._gathered, self._bytes = self._gathered, {}, 0
        if lines:
            self._start(next(iter(lines)), self._run(lines))

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.get_running_loop().create_task(work)

    async def _run(self, lines: dict[str, str]) -> None:
        """Answer calls through a new batch."""
        async with self._failing(set(lines)):
            content = ("\n".join(lines.values()) + "\n").encode()
            uploaded = await self._patiently(
                lambda: self.api.files.create(file=("notewriter.jsonl", content), purpose="batch")
            )
            file = uploaded.id
            # Before it can cost anything.
            self._cache.execute("BEGIN")
            for key in lines:
                self._cache.execute("INSERT OR REPLACE INTO batched VALUES (?, ?, NULL)", (key, file))
            self._cache.execute("COMMIT")
            current = asyncio.current_task()
            assert current is not None
            self._tasks[file] = current
            await self._follow(file, await self._create(file), set(lines))

    async def _resume(self, file: str, batch: str | None) -> None:
        """Answer calls from the batch that an earlier run submitted, or was about to submit, with this file."""
        keys = {key for (key,) in self._cache.execute("SELECT key FROM batched WHERE file = ?", (file,))}
        async with self._failing(keys):
            try:
                running = await (self._patiently(self.api.batches.retrieve, batch) if batch else self._create(file))
                logger.info("batch %s: resumed, with %d requests of an earlier run", running.id, len(keys))
                await self._follow(file, running, keys)
            except (openai.NotFoundError, openai.BadRequestError) as error:
                # Its files are deleted some time after it has ended.
                logger.warning("batch %s: no longer exists (%s); its requests are sent again", batch, reason(error))
                self._settle(dict.fromkeys(keys, UNANSWERED))

    async def _create(self, file: str) -> Batch:
        """The batch of an uploaded file; one whose creation was not acknowledged, or not recorded, is found."""

        async def create() -> Batch:
            async for batch in self.api.batches.list(limit=100):
                if batch.input_file_id == file:
                    return batch
            return await self.api.batches.create(
                input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h"
            )

        return await self._patiently(create)

    async def _follow(self, file: str, batch: Batch, keys: set[str]) -> None:
        """Wait for the end of a batch, and hand out its outcomes."""
        self._cache.execute("UPDATE batched SET batch = ? WHERE file = ?", (batch.id, file))
        start, shown = time.monotonic(), ""
        while True:
            # Some APIs count none, or in part.
            done = sum(filter(None, [counts.completed, counts.failed])) if (counts := batch.request_counts) else "?"
            if (now := f"{escape_controls(str(batch.status))}, {done} of {len(keys)} requests done") != shown:
                logger.info("batch %s: %s after %.0f s", batch.id, now, time.monotonic() - start)
                shown = now
            if batch.status in ENDED:
                break
            await asyncio.sleep(POLL)
            batch = await self._patiently(self.api.batches.retrieve, batch.id)
        outcomes: dict[str, BatchedReply] = {}
        try:
            for output in (batch.output_file_id, batch.error_file_id):
                if output:
                    outcomes |= await self._read(output)
        finally:
            # What one file contains is kept even if the other cannot be read.
            self._settle({key: outcome for key, outcome in outcomes.items() if key in keys})
        missing = keys - outcomes.keys()
        if batch.status in ("failed", "cancelled"):
            for key in missing:
                self.forget(key)
            messages = [str(each.message) for each in (batch.errors and batch.errors.data) or []][:1]
            why = f" ({escape_controls(messages[0])[:300]})" if messages else ""
            raise UserError(
                f"{self._endpoint.base_url}: batch {batch.id} is {batch.status}{why}; "
                "finished calls are kept; correct what it names, and run the same command again"
            )
        if missing:
            logger.warning(
                "batch %s: %s without a reply to %d of %d requests, which are sent again",
                batch.id,
                batch.status,
                len(missing),
                len(keys),
            )
        self._settle(dict.fromkeys(missing, UNANSWERED))

    async def _read(self, file: str) -> dict[str, BatchedReply]:
        """The outcomes in an output or error file, by custom id; lines of another form are left out."""

        async def read() -> dict[str, BatchedReply]:
            text = (await self.api.files.content(file)).text
            outcomes = {}
            # Not splitlines, which also splits at characters that JSON strings may contain.
            for line in text.split("\n"):
                with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
                    record = json.loads(line)
                    response = record["response"]
                    if response is None:
                        # batch_expired, for example: the request was not processed.
                        outcomes[str(record["custom_id"])] = BatchedReply(408, {"error": record["error"]})
                    else:
                        outcomes[str(record["custom_id"])] = BatchedReply(
                            int(response["status_code"]), response["body"]
                        )
            if text.strip() and not outcomes:
                raise UnreadableReply("not the output of a batch")
            return outcomes

        return await self._patiently(read)

    def _settle(self, outcomes: dict[str, BatchedReply]) -> None:
        for key, outcome in outcomes.items():
            future = self._waiting.get(key)
            if future is None:
                self._unasked.setdefault(key, outcome)
            elif not future.done():
                future.set_result(outcome)

    @contextlib.asynccontextmanager
    async def _failing(self, keys: set[str]) -> AsyncIterator[None]:
        """Let the calls that wait for a batch fail with the error that ends the block."""
        try:
            yield
        except Exception as error:
            failure = self._explained(error)
            for key in keys:
                if (future := self._waiting.get(key)) and not future.done():
                    future.set_exception(failure)

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return UserError(rejected_key(self._endpoint.base_url, self._endpoint.api_key_env, error))
        if isinstance(error, openai.NotFoundError):
            return UserError(f"{self._endpoint.base_url}: has no batch API; remove `batch: true` from this endpoint")
        if is_transient(error):
            return UserError(
                f"{self._endpoint.base_url}: the batch API does not answer ({reason(error)}); batches go on there; run "
                "the same command again to fetch their replies"
            )
        if isinstance(error, openai.APIError):
            return UserError(f"{self._endpoint.base_url}: refuses the batch ({reason(error)}); correct what it names")
        return error

    async def _patiently(self, ask: Callable[..., Awaitable[Reply]], *arguments: str) -> Reply:
        """A reply of the batch API, retried as a model's."""

        async def call() -> Reply:
            reply = await ask(*arguments)
            if isinstance(reply, Batch | FileObject) and not isinstance(reply.id, str):
                raise UnreadableReply(f"a {type(reply).__name__} without an id")
            if isinstance(reply, Batch) and reply.status not in (*ENDED, *RUNNING):
                raise UnreadableReply(f"batch {reply.id} has the status {str(reply.status)[:100]!r}")
            return reply

        return await retrying(self._endpoint.attempts, self._endpoint.patience)(call)
