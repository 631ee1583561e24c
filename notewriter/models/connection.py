"""Connections to endpoints: addresses, keys, and which faults are worth another try (`http` reads the replies).

All that speaks HTTP here does so through this module: models by `connect`, other services that take and give JSON by
`open_http`. `retrying` repeats a call after faults that may pass, waits for a server that is being restarted, and heeds
Retry-After; `reason` is an error in words, without secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import tenacity

from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.ground.terminal import escape_controls

if TYPE_CHECKING:
    import httpx2
    import openai
else:
    httpx2, openai = Lazy("httpx2"), Lazy("openai")

_USER = re.compile(r"\s*(?:[\w+.-]+://)?[^/?#]*@")


REMOVED = "[key removed]"
"""Stands for a key in a reply."""


class UnreadableReply(Exception):
    """A reply that is truncated, empty or malformed; a retry may help."""


def check_address(address: str, place: str = "base_url") -> None:
    """Check that requests can be sent to an address and that it contains no secret, since addresses are recorded.

    Raises:
        UserError: it is not `http://HOST[:PORT][/PATH]`; begins with `place` and does not repeat a possible secret.
    """
    if _USER.match(address):
        raise UserError(
            f"{place}: contains a user name or password, which would be written to config.yaml; remove it "
            "and set api_key_env to the environment variable that contains the key (default: OPENAI_API_KEY)"
        )
    try:
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"}:
            raise ValueError("it does not begin with http:// or https://")
        if not parts.hostname:
            raise ValueError("it has no host")
        if parts.port == 0:
            raise ValueError("port 0 is not valid")
        if re.search(r"[\s?#]", address):
            raise ValueError("it contains white space or something after the path")
        # The resolver's own check, whose failure is not a connection error.
        parts.hostname.encode("idna")
        httpx2.URL(address)
    except (ValueError, httpx2.InvalidURL) as error:
        # The query may be a secret.
        shown = escape_controls(re.split(r"[?#]", address)[0])[:200]
        raise UserError(
            f"{place}: {shown!r} is not the address of an endpoint ({escape_controls(str(error))}); write it as "
            "http://HOST:PORT/v1"
        ) from error


def read_key(variable: str) -> str:
    """The key in an environment variable; empty if it is not set.

    Raises:
        UserError: it contains characters that cannot be sent; the message does not repeat it.
    """
    key = os.environ.get(variable, "")
    if not re.fullmatch(r"[!-~]*", key):
        raise UserError(
            f"{variable}: the key in this environment variable contains white space (such as a trailing newline) or "
            "non-ASCII characters; set it again without them"
        )
    return key


def connect(
    address: str,
    timeout: float,
    key_variable: str = "",
    *,
    lines: bool = False,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> openai.AsyncOpenAI:
    """An API client for an address, with the key from the environment variable `key_variable`.

    `timeout` is in seconds and covers the whole reply. Requests are not retried. With `lines`, the contents of files
    may be any text. `transport` replaces HTTP.

    Raises:
        UserError: the address or the key is not usable.
    """
    # Imported here, as openai is: it takes longer than a command takes to start.
    from notewriter.models.http import HttpClient

    check_address(address)
    return openai.AsyncOpenAI(
        base_url=address,
        # Local servers need no key, but the library insists on one.
        api_key=read_key(key_variable) or "none",
        max_retries=0,
        timeout=timeout,
        # A proxy in the environment, common on clusters, must not intercept requests to this machine.
        http_client=HttpClient(trust_env=not _is_local(address), lines=lines, transport=transport),
    )


def open_http(address: str, place: str, headers: dict[str, str] | None = None) -> httpx2.AsyncClient:
    """A plain HTTP client for services other than models, with the same bounds on replies; see `HttpClient.send`.

    Raises:
        UserError: the address is not usable; begins with `place`.
    """
    from notewriter.models.http import HttpClient

    check_address(address, place)
    return HttpClient(trust_env=not _is_local(address), headers=headers)


def _is_local(address: str) -> bool:
    return urlsplit(address).hostname in {"localhost", "127.0.0.1", "::1"}


def reason(error: Exception) -> str:
    """The error on one line: the server's message if there is one."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else body
    return escape_controls(" ".join(str(message or error)[:1000].split()))[:300]


def is_gone(error: BaseException | None) -> bool:
    """Whether no server answers at the address, as during a restart."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in {502, 503, 504}
    return isinstance(error, openai.APIConnectionError) and not isinstance(error, openai.APITimeoutError)


def is_transient(error: BaseException) -> bool:
    """Whether a retry may help."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in {408, 409, 425, 429} or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError | openai.APIResponseValidationError | UnreadableReply)


_backoff = tenacity.wait_random_exponential(multiplier=0.5, max=30)


def wait(state: tenacity.RetryCallState) -> float:
    """Exponential backoff with jitter, or the server's Retry-After (seconds), at most a minute."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, openai.APIStatusError):
        asked = error.response.headers.get("retry-after", "")
        if asked.isdecimal():
            return min(float(asked), 60.0)
    return _backoff(state)


def retrying(
    attempts: int,
    patience: float = 0.0,
    before_sleep: Callable[[tenacity.RetryCallState], Awaitable[None]] | None = None,
) -> tenacity.AsyncRetrying:
    """Tries again after faults that may pass: `attempts` in all, and for `patience` seconds if no server answers.

    The last fault is raised as it is.
    """

    def gives_up(state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        return state.attempt_number >= attempts and not (is_gone(error) and state.idle_for < patience)

    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(is_transient),
        wait=wait,
        stop=gives_up,
        before_sleep=before_sleep,
        reraise=True,
    )


def rejected_key(address: str, variable: str) -> str:
    """The message for a key that an endpoint rejects."""
    return f"{address}: rejects the key; set a valid one in the environment variable {variable}"
