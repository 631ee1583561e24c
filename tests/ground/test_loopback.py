"""Which requests to the loopback a web page of another server has sent."""

import pytest

from notewriter.ground.loopback import is_of_a_page


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
