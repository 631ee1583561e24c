"""Which requests to the loopback a web page of another server has sent, and how much of a body is read."""

import asyncio
from types import SimpleNamespace

import pytest

from notewriter.ground.loopback import DISCARDED_BYTES, body_of, is_of_a_page


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"host": "localhost:8001"}, False),
        ({"host": "localhost:8001", "origin": "http://localhost:8001", "sec-fetch-site": "same-origin"}, False),
        ({"host": "localhost:8001", "origin": "https://attacker.example"}, True),
        ({"host": "localhost:8001", "origin": "null"}, True),
        ({"host": "localhost:8001", "sec-fetch-site": "cross-site"}, True),
    ],
)
def test_a_request_of_another_page_is_known_by_what_browsers_say_of_it(headers, expected):
    assert is_of_a_page(headers) is expected


@pytest.mark.parametrize(
    ("pieces", "body", "left"),
    [
        ([b"abc", b"d"], b"abcd", 0),
        ([b"abc", b"de", b"fg"], None, 0),
        ([b"abcde", bytes(DISCARDED_BYTES), b"fg"], None, 1),
    ],
    ids=["of the size that is allowed", "larger", "larger than what is discarded"],
)
def test_the_rest_of_a_large_body_is_read_so_that_the_answer_arrives(pieces, body, left):
    remaining = iter(pieces)

    async def stream():
        for piece in remaining:
            yield piece

    assert asyncio.run(body_of(SimpleNamespace(stream=stream), 4)) == body
    assert len([*remaining]) == left
