"""The HTTP connection to an endpoint: replies are bounded in size and time, never redirected, and freed of keys.

Every reply passes through `_Client.send`, so that nothing after it (errors, traces, the cache, the terminal) has to
look for keys again.
"""

import asyncio
import contextlib
import functools
import json
import os
import re
import zlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import openai
import tenacity

from notewriter.ground.errors import UserError
from notewriter.ground.terminal import escape_controls

MAX_REPLY_BYTES = 16 * 2**20
"""The largest reply accepted; about 100,000 tokens with their log-probabilities."""

MIN_KEY_LENGTH = 8
"""Shorter keys are not removed from replies: `EMPTY` and the like are placeholders for servers without keys."""

MAX_FILE_BYTES = 2**30
"""The largest file of JSON Lines accepted; the output of a batch of 50,000 requests has about 200 MiB."""

REMOVED = "[key removed]"

_PUBLIC_HEADERS = re.compile(
    "accept|accept-encoding|connection|content-(length|type)|host|idempotency-key|user-agent|x-stainless-.*",
    re.IGNORECASE,
)
"""Request headers that contain no secret; keys, including a proxy's, are in the others."""


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
    lines: bool = False,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> openai.AsyncOpenAI:
    """An API client for an address, with the key from the environment variable `key_variable`.

    `timeout` is in seconds and covers the whole reply. Requests are not retried. With `lines`, the contents of files
    may be any text. `transport` replaces HTTP.

    Raises:
        UserError: the address or the key is not usable.
    """
    check_address(address)
    return openai.AsyncOpenAI(
        base_url=address,
        # Local servers need no key, but the library insists on one.
        api_key=read_key(key_variable) or "none",
        max_retries=0,
        timeout=timeout,
        # A proxy in the environment, common on clusters, must not intercept requests to this machine.
        http_client=_Client(trust_env=not _is_local(address), lines=lines, transport=transport),
    )


def open_http(address: str, place: str, headers: dict[str, str] | None = None) -> httpx2.AsyncClient:
    """A plain HTTP client for services other than models, with the same bounds on replies; see `_Client.send`.

    Raises:
        UserError: the address is not usable; begins with `place`.
    """
    check_address(address, place)
    return _Client(trust_env=not _is_local(address), headers=headers)


def _is_local(address: str) -> bool:
    return urlsplit(address).hostname in {"localhost", "127.0.0.1", "::1"}


class _Client(openai.DefaultAsyncHttpxClient):
    """An HTTP client that follows no redirects, bounds replies in size and time, and removes keys from them."""

    def __init__(self, *, lines: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._lines = lines

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The complete reply to a request: the body in UTF-8, and Retry-After as the only header.

        Raises:
            openai.APIConnectionError: no reply, or not a complete one in time.
            UnreadableReply: a successful reply that is not JSON.
            UserError: a redirect, or a reply that is too large or in an encoding that was not requested.
        """
        # The size of a compressed reply is known only after decompression.
        request.headers["Accept-Encoding"] = "identity"
        keys = _keys(request.headers)
        lines = self._lines and request.url.path.endswith("/content")
        try:
            # The library's own timeout is per chunk, and a reply may consist of any number of chunks.
            async with asyncio.timeout(request.extensions["timeout"]["read"]):
                reply = await super().send(request, **options | {"stream": True, "follow_redirects": False})
                try:
                    body = await _body(reply, MAX_FILE_BYTES if lines else MAX_REPLY_BYTES)
                finally:
                    await reply.aclose()
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise openai.APITimeoutError(request) from error
        except httpx2.TransportError as error:
            words = without_keys(f"Connection error. {_root(error)}", keys)
            # Not from `error`, which may quote a malformed reply.
            raise openai.APIConnectionError(message=words, request=request) from None
        if 300 <= reply.status_code < 400:
            target = without_keys(reply.headers.get("location", "nowhere"), keys)
            raise UserError(
                f"{request.url}: redirects to {escape_controls(target)[:200]}; redirects are not followed, since they "
                "would send prompts and key elsewhere; correct base_url"
            )
        return _cleaned(reply, body, keys, lines)


def _cleaned(reply: httpx2.Response, body: bytes, keys: re.Pattern[str] | None, lines: bool) -> httpx2.Response:
    """The reply without keys: status, Retry-After, and the body in UTF-8."""
    kind = "application/json"
    try:
        content = json.dumps(without_keys(json.loads(body), keys))
    except (ValueError, RecursionError):
        # In UTF-16 and UTF-32 zero bytes between the characters could hide a key.
        content = without_keys(body.decode("utf-8", "replace").replace("\0", ""), keys)
        if reply.is_success and not lines:
            content_type = escape_controls(without_keys(reply.headers.get("content-type", "no type"), keys))[:60]
            words = " ".join(escape_controls(content[:200]).split())
            raise UnreadableReply(f"{content_type}, not JSON: {words!r}" if content else "an empty reply") from None
        kind = "text/plain; charset=utf-8"
    headers = {name: value for name, value in reply.headers.items() if name == "retry-after" and value.isdecimal()}
    headers["content-type"] = kind
    return httpx2.Response(reply.status_code, headers=headers, content=content, request=reply.request)


async def _body(reply: httpx2.Response, limit: int) -> bytes:
    """The whole body of a reply, at most `limit` bytes, also after decompression."""
    address, encoding = reply.request.url, reply.headers.get("content-encoding", "identity").lower()
    if encoding not in {"identity", "gzip", "deflate", ""}:
        raise UserError(f"{address}: sends replies in an encoding that was not requested; correct base_url")
    body = bytearray()
    async with contextlib.aclosing(reply.aiter_raw()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > limit:
                break
    if encoding in {"gzip", "deflate"}:
        try:
            # 32: detect gzip or zlib from the header.
            body = bytearray(zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, limit + 1))
        except zlib.error as error:
            raise UnreadableReply(f"a reply that is not {encoding}: {error}") from error
    if len(body) > limit:
        raise UserError(
            f"{address}: sends a reply of more than {limit // 2**20} MiB, which no model writes; correct base_url"
        )
    return bytes(body)


def _root(error: BaseException) -> str:
    """The message of the innermost cause of an error."""
    words = str(error)
    cause = error.__cause__ or error.__context__
    while cause is not None:
        words = str(cause) or words
        cause = cause.__cause__ or cause.__context__
    return words


def _keys(headers: httpx2.Headers) -> re.Pattern[str] | None:
    """A pattern that finds the secrets in a request's headers."""
    values = (value for name, value in headers.items() if not _PUBLIC_HEADERS.fullmatch(name))
    return _finder(frozenset(word for value in values for word in value.split() if len(word) >= MIN_KEY_LENGTH))


@functools.lru_cache(maxsize=64)
def _finder(keys: frozenset[str]) -> re.Pattern[str] | None:
    """A pattern that finds the keys as they are, in URLs and in nested JSON."""
    forms = set()
    for key in keys:
        forms |= {key, quote(key, safe=""), json.dumps(key)[1:-1], key.replace("/", r"\/")}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE) if forms else None


def without_keys(value: Any, keys: re.Pattern[str] | None) -> Any:
    """A JSON value with the keys removed from all strings, including names."""
    if keys is None:
        return value
    if isinstance(value, str):
        return keys.sub(REMOVED, value)
    if isinstance(value, list):
        return [without_keys(each, keys) for each in value]
    if isinstance(value, dict):
        return {without_keys(name, keys): without_keys(each, keys) for name, each in value.items()}
    return value


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
