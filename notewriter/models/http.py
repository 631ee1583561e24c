"""The HTTP client of all connections: replies are bounded in size and time, never redirected, and freed of keys.

Every reply passes through `HttpClient.send`, so that nothing after it (errors, traces, the cache, the terminal) has to
look for keys again.
"""

import asyncio
import contextlib
import functools
import json
import re
import zlib
from typing import Any
from urllib.parse import quote

import httpx2
import openai

from notewriter.ground.errors import UserError
from notewriter.ground.terminal import escape_controls
from notewriter.models.connection import REMOVED, UnreadableReply

MAX_REPLY_BYTES = 16 * 2**20
"""The largest reply accepted; about 100,000 tokens with their log-probabilities."""

MIN_KEY_LENGTH = 8
"""Shorter keys are not removed from replies: `EMPTY` and the like are placeholders for servers without keys."""

MAX_FILE_BYTES = 2**30
"""The largest file of JSON Lines accepted; the output of a batch of 50,000 requests has about 200 MiB."""

_PUBLIC_HEADERS = re.compile(
    "accept|accept-encoding|connection|content-(length|type)|host|idempotency-key|user-agent|x-stainless-.*",
    re.IGNORECASE,
)
"""Request headers that contain no secret; keys, including a proxy's, are in the others."""


class HttpClient(openai.DefaultAsyncHttpxClient):
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
