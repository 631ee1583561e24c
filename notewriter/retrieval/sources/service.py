"""Calls to retrieval services: replies are bounded, calls repeated, and the last error is one line."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2
import openai
import tenacity

from notewriter.ground.errors import UserError
from notewriter.ground.terminal import escape_controls
from notewriter.models.connection import UnreadableReply, open_http, reason

logger = logging.getLogger(__name__)

T = TypeVar("T")

_backoff = tenacity.wait_random_exponential(multiplier=0.25, max=20)


class _Refused(Exception):
    """The service answers with an error status; `again` says whether another attempt may help."""

    def __init__(self, reply: httpx2.Response) -> None:
        words = " ".join(escape_controls(reply.text[:300]).split())
        super().__init__(f"HTTP {reply.status_code}{f': {words}' if words else ''}")
        self.again = reply.status_code in {408, 409, 425, 429} or reply.status_code >= 500
        self.rejects_key = reply.status_code in {401, 403}
        after = reply.headers.get("retry-after", "")
        self.wait = min(float(after), 60.0) if after.isdecimal() else 0.0


class Service:
    """An HTTP service that speaks JSON, used by the tasks of one event loop.

    Args:
        address: where requests go.
        place: the option that names it, for errors.
        timeout: seconds for a whole reply.
        attempts: tries per request.
        headers: sent with every request; secrets in them are removed from replies and errors.
        key: the environment variable of the key, for errors.
    """

    def __init__(
        self,
        address: str,
        place: str,
        timeout: float,
        attempts: int,
        headers: dict[str, str] | None = None,
        key: str = "",
    ) -> None:
        self.address = address
        self._http = open_http(address, place, headers)
        self._timeout = timeout
        self._attempts = attempts
        self._key = key

    async def post(self, body: object, read: Callable[[Any], T]) -> T:
        """What `read` makes of the JSON reply to a request.

        `read` raises ValueError for a reply of the wrong form, after which the request is sent again.

        Raises:
            UserError: no usable reply after all attempts, or the service refuses the request.
        """

        async def ask() -> T:
            reply = await self._http.post(self.address, json=body, timeout=self._timeout)
            return _read(reply, read)

        return await self._until_answered(ask, self._attempts)

    async def get(self, address: str, read: Callable[[Any], T], attempts: int = 3) -> T:
        """What `read` makes of the JSON at another address of the service; errors are as for `post`."""

        async def ask() -> T:
            return _read(await self._http.get(address, timeout=min(self._timeout, 20.0)), read)

        return await self._until_answered(ask, attempts)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _until_answered(self, ask: Callable[[], Awaitable[T]], attempts: int) -> T:
        try:
            return await tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception(_may_help),
                wait=_wait,
                stop=tenacity.stop_after_attempt(attempts),
                reraise=True,
            )(ask)
        except _Refused as error:
            if error.rejects_key and self._key:
                raise UserError(
                    f"{self.address}: rejects the key; set a valid one in the environment variable {self._key}"
                ) from error
            if not error.again:
                raise UserError(f"{self.address}: refuses the request ({error}); correct the retriever") from error
            raise self._gave_up(attempts, error) from error
        except (openai.APIError, UnreadableReply) as error:
            raise self._gave_up(attempts, error) from error

    def _gave_up(self, attempts: int, error: Exception) -> UserError:
        return UserError(
            f"{self.address}: no usable reply after {attempts} attempts ({reason(error)}); finished questions are "
            "kept; run the same command again when it is up"
        )


def _read(reply: httpx2.Response, read: Callable[[Any], T]) -> T:
    if not reply.is_success:
        raise _Refused(reply)
    try:
        return read(reply.json())
    except (ValueError, RecursionError) as error:
        raise UnreadableReply(f"a reply of another form: {error}") from error


def _may_help(error: BaseException) -> bool:
    return isinstance(error, openai.APIConnectionError | UnreadableReply) or (
        isinstance(error, _Refused) and error.again
    )


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return error.wait if isinstance(error, _Refused) and error.wait else _backoff(state)
