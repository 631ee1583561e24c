"""Text: the titles of pages."""

import pytest

from notewriter.ground.text import page_title


@pytest.mark.parametrize(
    "page",
    [
        "Mira Tolen",
        "mira_Tolen ",
        "https://en.wikipedia.org/wiki/Mira_Tolen#Life",
        "https://en.m.wikipedia.org/wiki/mira%20Tolen/",
        "en.wikipedia.org/wiki/Mira__Tolen?oldid=1",
    ],
)
def test_a_page_has_one_title_however_it_is_named(page):
    assert page_title(page) == "Mira Tolen"


@pytest.mark.parametrize("address", ["https://www.bbc.com/news/new_bridge", "https://en.wikipedia.org/wiki/"])
def test_an_address_without_a_title_stays_as_it_is(address):
    assert page_title(address) == address
