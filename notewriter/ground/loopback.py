"""Requests to a server on this machine that no one on it has meant to make.

Every web page that is open in a browser can reach what listens on its machine's loopback. The names in the Host header
keep out those that an attacker's DNS points here (DNS rebinding), `is_of_a_page` keeps out other pages.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

NAMES = ("127.0.0.1", "localhost")
"""What a request to the loopback calls it."""


def is_of_a_page(headers: Mapping[str, str]) -> bool:
    """Whether a page of another server has sent a request, by its headers under lower-case names."""
    own = (None, f"http://{headers.get('host', '')}")
    return headers.get("origin") not in own or headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


async def body_of(request: Any, most: int) -> bytes | None:
    """The body of a Starlette request; None for one of more than `most` bytes, and no more of it is kept."""
    stream: Callable[[], AsyncIterator[bytes]] = request.stream
    body = bytearray()
    async for piece in stream():
        body += piece
        if len(body) > most:
            return None
    return bytes(body)
