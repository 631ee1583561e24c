"""Connections over HTTP: addresses, keys, and which faults are worth another try.

All that speaks HTTP here, to models and to other services that take and give JSON, does so through `connect`.
`retrying` repeats a call after faults that may pass, waits for a server that is being restarted, and heeds Retry-After;
`reason` is an error in words, without the key.
"""

from __future__ import annotations

import json
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

REMOVED = "[key removed]"
"""Stands for a key that an error quotes."""

MIN_KEY_LENGTH = 8
"""Shorter keys may be quoted: `EMPTY` and the like are placeholders for servers without keys."""

_USER = re.compile(r"\s*(?:[\w+.-]+://)?[^/?#]*@")


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
    place: str = "base_url",
    transport: httpx2.AsyncBaseTransport | None = None,
) -> openai.AsyncOpenAI:
    """A client for an address, with the key from the environment variable `key_variable`.

    Args:
        address: where requests go.
        timeout: the seconds that a server may be silent. Requests are not retried.
        key_variable: the environment variable of the key.
        place: the option that names the address, for errors.
        transport: replaces HTTP.

    Raises:
        UserError: the address or the key is not usable.
    """
    check_address(address, place)
    return openai.AsyncOpenAI(
        base_url=address,
        # Local servers need no key, but the library insists on one.
        api_key=read_key(key_variable) or "none",
        max_retries=0,
        timeout=timeout,
        http_client=openai.DefaultAsyncHttpxClient(
            # A proxy in the environment, common on clusters, must not intercept requests to this machine.
            trust_env=urlsplit(address).hostname not in {"localhost", "127.0.0.1", "::1"},
            follow_redirects=False,
            event_hooks={"response": [_check_reply]},
            transport=transport,
        ),
    )


async def _check_reply(reply: httpx2.Response) -> None:
    """Refuse a redirect, a page where JSON belongs, and a reply that would bring the key into files."""
    if reply.is_redirect:
        target = escape_controls(reply.headers["location"])[:200]
        raise UserError(
            f"{reply.url}: redirects to {target}; redirects are not followed, since they would send prompts and key "
            "elsewhere; correct base_url"
        )
    if reply.is_error:
        return
    kind, text = reply.headers.get("content-type", "no type"), await reply.aread()
    if any(key.encode() in text for key in _keys_of(reply.request)):
        raise UserError(f"{reply.url}: sends the key back in its reply; use another endpoint")
    # The contents of a batch API's files are of any type.
    if reply.url.path.endswith("/content"):
        return
    try:
        if "json" not in kind:
            raise ValueError("of another type")
        json.loads(text)
    except (ValueError, RecursionError):
        words = " ".join(text[:200].decode("utf-8", "replace").split())
        raise UnreadableReply(escape_controls(f"{kind[:60]}, not JSON: {words!r}")) from None


def reason(error: BaseException) -> str:
    """The reason of an error on one line, without the request's key: the server's message if there is one."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else body
    if isinstance(error, openai.APIStatusError):
        message = message or f"HTTP {error.status_code}: {error.response.text}".removesuffix(": ")
    words = " ".join(str(message or error)[:1000].split())
    if isinstance(error, openai.APIConnectionError):
        cause: BaseException = error
        while deeper := cause.__cause__ or cause.__context__:
            cause = deeper
        words = f"{words} {cause}" if cause is not error else words
    if request := getattr(error, "request", None):
        for key in _keys_of(request):
            words = words.replace(key, REMOVED)
    return escape_controls(words)[:300]


def _keys_of(request: httpx2.Request) -> list[str]:
    sent = [request.headers.get(name, "").split(" ")[-1] for name in ("authorization", "x-api-key")]
    return [key for key in sent if len(key) >= MIN_KEY_LENGTH]


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


def rejected_key(address: str, variable: str, error: Exception) -> str:
    """The message for a key that an endpoint rejects, with its reason: it may be that of a server behind it."""
    return (
        f"{address}: rejects the key; set a valid one in the environment variable {variable} (it says: {reason(error)})"
    )
