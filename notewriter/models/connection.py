"""The connection to an endpoint: what it sends is bounded in size and time, comes from no other place, and has no key.

Everything that an endpoint says passes `_Client.send`, so that nothing behind it (an error, a trace, the cache, a
terminal) needs to look for keys again.
"""

import asyncio
import base64
import contextlib
import functools
import html
import json
import os
import re
import zlib
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import openai

from notewriter.errors import UserError
from notewriter.terminal import harmless

MOST_BYTES = 16 * 2**20
"""The largest reply that is read; 100,000 tokens with their log-probabilities take about as much."""

SHORTEST_KEY = 8
"""Characters from which on a key is removed from replies: `EMPTY` and the like, for servers without keys, are words."""

REMOVED = "[key removed]"

_HARMLESS_HEADERS = re.compile(
    "accept|accept-encoding|connection|content-(length|type)|host|user-agent|x-stainless-.*", re.IGNORECASE
)
"""What is sent with every request and holds no secret; the key is in another one, also where a proxy has its own."""


_USER = re.compile(r"\s*(?:[\w+.-]+://)?[^/?#]*@")


class Unreadable(Exception):
    """A reply that arrived cut, empty or in another shape; asking again may help."""


def check_address(address: str, place: str = "base_url") -> None:
    """Find an address that no request can be sent to, or with a secret in it: addresses are written down and shown.

    Raises:
        UserError: it is not `http://HOST[:PORT][/PATH]`; begins with `place`, and does not repeat what may be a secret.
    """
    if _USER.match(address):
        raise UserError(
            f"{place}: has a user name or password before the host, which would be written to config.yaml; take it out "
            "and name the environment variable that holds the key with api_key_env (default: OPENAI_API_KEY)"
        )
    try:
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"}:
            raise ValueError("it begins with neither http:// nor https://")
        if not parts.hostname:
            raise ValueError("it has no host")
        if parts.port == 0:
            raise ValueError("port 0 is none")
        if re.search(r"[\s?#]", address):
            raise ValueError("it has white space in it, or something after its path")
        # The resolver's own check, which is no error of a connection.
        parts.hostname.encode("idna")
        httpx2.URL(address)
    except (ValueError, httpx2.InvalidURL) as error:
        # What follows a question mark may be a secret.
        shown = harmless(re.split(r"[?#]", address)[0])[:200]
        raise UserError(
            f"{place}: {shown!r} is not the address of an endpoint ({harmless(str(error))}); write it as "
            "http://HOST:PORT/v1"
        ) from error


def read_key(variable: str) -> str:
    """The key in an environment variable, empty where there is none.

    Raises:
        UserError: it has characters that cannot be sent; the message does not repeat it.
    """
    key = os.environ.get(variable, "")
    if not re.fullmatch(r"[!-~]*", key):
        raise UserError(
            f"{variable}: the key in this environment variable has white space or characters beyond ASCII in it, as a "
            "line break at its end; set it again without"
        )
    return key


def connect(address: str, timeout: float, key_variable: str = "") -> openai.AsyncOpenAI:
    """A client for an address, with the key in the environment variable `key_variable`.

    `timeout` is in seconds, for the whole of a reply. A request is sent once.

    Raises:
        UserError: the address or the key cannot be used.
    """
    check_address(address)
    local = urlsplit(address).hostname in {"localhost", "127.0.0.1", "::1"}
    return openai.AsyncOpenAI(
        base_url=address,
        # Local servers want no key, but the library insists on one.
        api_key=read_key(key_variable) or "none",
        max_retries=0,
        timeout=timeout,
        # A proxy in the environment, usual on clusters, must not catch requests to this machine.
        http_client=_Client(trust_env=not local),
    )


class _Client(openai.DefaultAsyncHttpxClient):
    """An HTTP client that follows no redirect, reads no reply without an end, and hands on none with a key in it."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The reply to a request, read whole; its body is UTF-8 and of its headers only Retry-After is left.

        Raises:
            openai.APIConnectionError: there is no reply, or not the whole of one within the time for it.
            Unreadable: a reply that says it is one and is not JSON.
            UserError: a redirect, a reply that is too large or encoded in a way that was not asked for.
        """
        # Nothing of a reply is worth a compression, whose size is known only when it is undone.
        request.headers["Accept-Encoding"] = "identity"
        keys = _keys(request.headers)
        try:
            # The library's own timeout is for each piece of a reply, and there may be no end of pieces.
            async with asyncio.timeout(request.extensions["timeout"]["read"]):
                reply = await super().send(request, **options | {"stream": True, "follow_redirects": False})
                try:
                    body = await _body(reply)
                finally:
                    await reply.aclose()
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise openai.APITimeoutError(request) from error
        except httpx2.TransportError as error:
            words = without_keys(f"Connection error. {_root(error)}", keys)
            # Not from `error`: the words of an error about a malformed reply are the reply's.
            raise openai.APIConnectionError(message=words, request=request) from None
        if 300 <= reply.status_code < 400:
            target = without_keys(reply.headers.get("location", "nowhere"), keys)
            raise UserError(
                f"{request.url}: redirects to {harmless(target)[:200]}, and no redirect is followed, since prompts "
                "and key would go there; correct base_url"
            )
        return _cleaned(reply, body, keys)


def _cleaned(reply: httpx2.Response, body: bytes, keys: re.Pattern[str] | None) -> httpx2.Response:
    """The reply without keys: status, Retry-After, and the body in UTF-8."""
    kind = "application/json"
    try:
        content = json.dumps(without_keys(json.loads(body), keys))
    except (ValueError, RecursionError):
        # A text in two or four bytes a character is one with zeros between, and a key could hide there.
        content = without_keys(body.decode("utf-8", "replace").replace("\0", ""), keys)
        if reply.is_success:
            said = harmless(without_keys(reply.headers.get("content-type", "no type"), keys))[:60]
            words = " ".join(harmless(content[:200]).split())
            raise Unreadable(f"no JSON but {said}: {words!r}" if content else "an empty reply") from None
        kind = "text/plain; charset=utf-8"
    headers = {name: value for name, value in reply.headers.items() if name == "retry-after" and value.isdecimal()}
    headers["content-type"] = kind
    return httpx2.Response(reply.status_code, headers=headers, content=content, request=reply.request)


async def _body(reply: httpx2.Response) -> bytes:
    """The whole body of a reply, no larger than `MOST_BYTES`, also when decompressed."""
    address, encoding = reply.request.url, reply.headers.get("content-encoding", "identity").lower()
    if encoding not in {"identity", "gzip", "deflate", ""}:
        raise UserError(f"{address}: encodes its replies in a way that was not asked for; correct base_url")
    body = bytearray()
    async with contextlib.aclosing(reply.aiter_raw()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > MOST_BYTES:
                break
    if encoding in {"gzip", "deflate"}:
        try:
            # 32: the header says which of the two it is.
            body = bytearray(zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, MOST_BYTES + 1))
        except zlib.error as error:
            raise Unreadable(f"a reply that is no {encoding}: {error}") from error
    if len(body) > MOST_BYTES:
        raise UserError(
            f"{address}: sends a reply of more than {MOST_BYTES // 2**20} MiB, which no model writes; correct base_url"
        )
    return bytes(body)


def _root(error: BaseException) -> str:
    """What the system itself says of a failure: the last words in the chain of its causes."""
    words = str(error)
    cause = error.__cause__ or error.__context__
    while cause is not None:
        words = str(cause) or words
        cause = cause.__cause__ or cause.__context__
    return words


def _keys(headers: httpx2.Headers) -> re.Pattern[str] | None:
    """Finds what a request's headers have of secrets."""
    values = (value for name, value in headers.items() if not _HARMLESS_HEADERS.fullmatch(name))
    return _finder(frozenset(word for value in values for word in value.split() if len(word) >= SHORTEST_KEY))


@functools.lru_cache(maxsize=64)
def _finder(keys: frozenset[str]) -> re.Pattern[str] | None:
    """Finds any of the keys, also as URLs, HTML, JSON within JSON, hexadecimal and base64 write them."""
    forms = set()
    for key in keys:
        forms |= {key, quote(key, safe=""), html.escape(key), json.dumps(key)[1:-1], key.replace("/", r"\/")}
        forms.add(key.encode().hex())
        for offset in range(3):
            # Within a longer text in base64 the key stands at one of three offsets; its outermost characters are
            # shared with what stands beside it.
            encoded = base64.b64encode(bytes(offset) + key.encode()).decode()
            inner = encoded[-(-offset * 8 // 6) : (offset + len(key)) * 8 // 6]
            forms |= {inner, inner.translate(str.maketrans("+/", "-_"))}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE) if forms else None


def without_keys(value: Any, keys: re.Pattern[str] | None) -> Any:
    """A JSON value in whose texts (also names) no key is left."""
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
    """The error on one line, without the body's braces where the server gave a message."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else body
    return harmless(" ".join(str(message or error)[:1000].split()))[:300]
