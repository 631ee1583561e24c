"""Requests to a server on this machine that a foreign web page caused, and the limits of their bodies.

Every web page that is open in a browser can reach what listens on its machine's loopback. The names in the Host header
keep out those that an attacker's DNS points here (DNS rebinding), `is_of_a_page` keeps out other pages.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

NAMES = ("127.0.0.1", "localhost")
"""The names of the loopback in requests."""
DISCARDED_BYTES = 64 * 2**20


def is_of_a_page(headers: Mapping[str, str]) -> bool:
    """Whether a page of another server has sent a request, by its headers under lower-case names."""
    own = (None, f"http://{headers.get('host', '')}")
    return headers.get("origin") not in own or headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


async def body_of(request: Any, most: int) -> bytes | None:
    """The body of a Starlette request; None for one of more than `most` bytes.

    The rest of a large body is read and discarded, up to 64 MiB: a connection that is closed with bytes unread is
    reset, and its client may not see the answer.
    """
    stream: Callable[[], AsyncIterator[bytes]] = request.stream
    body = bytearray()
    arrived = 0
    async for piece in stream():
        arrived += len(piece)
        if arrived <= most:
            body += piece
        elif arrived > DISCARDED_BYTES:
            break
    return bytes(body) if arrived <= most else None
