"""Web search in Serper's form, against a local stand-in."""

import pytest
from json_service import Answer, json_service

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval.chain import Chain

KEY = "serper-0123456789"
HITS = [
    {"title": "River", "link": "https://a.example/river", "snippet": "It flows.", "position": 1},
    {"title": "Town", "link": "https://b.example/town", "position": 2},
    {"title": "No address", "snippet": "Left out.", "position": 3},
]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)


async def search(url, scope=None, **options):
    chain = Chain([{"web": f"{url}/search", "attempts": 2, **options}])
    await chain.check()
    try:
        return (await chain.search("who?", 5, scope)).passages
    finally:
        await chain.close()


async def test_hits_become_passages_whose_ids_are_their_addresses():
    with json_service(lambda request: {"searchParameters": {}, "organic": HITS}) as service:
        assert await search(service.url) == [
            Passage("https://a.example/river", "River", "It flows."),
            Passage("https://b.example/town", "Town", ""),
        ]
        (request,) = service.requests
        assert (request.method, request.path, request.headers["x-api-key"]) == ("POST", "/search", KEY)
        assert request.json == {"q": "who?", "num": 5}
        assert [passage.title for passage in await search(service.url, {"Town"})] == ["Town"]


async def test_nothing_found_is_no_error():
    with json_service(lambda request: {"searchParameters": {}}) as service:
        assert await search(service.url) == []


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Answer(403, {"message": f"Unauthorized. {KEY}"}), "rejects the key; set a valid one in .* SERPER_API_KEY"),
        (Answer(400, {"message": f"Not enough credits for {KEY}"}), "refuses the request .*Not enough credits"),
        (Answer(500, {"message": KEY}), "no usable reply after 2 attempts"),
        ({"organic": 7}, "no usable reply after 2 attempts .*organic must be list"),
        # Of other services, and an error that is sent as a success.
        ({"results": [{"title": "River", "url": "https://a.example/river"}]}, "no usable reply .*'results': .*organic"),
        ({"web": {"results": []}}, "no usable reply .*'web': .*organic must be list"),
        ({"error": "no credits"}, "no usable reply .*{'error': 'no credits'}: organic must be list"),
    ],
)
async def test_a_failure_is_named_and_never_shows_the_key(reply, problem, caplog):
    with json_service(lambda request: reply) as service, pytest.raises(UserError, match=problem) as error:
        await search(service.url)
    assert KEY not in str(error.value) + caplog.text


def test_a_key_that_is_not_set_is_asked_for_before_any_work(monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY")
    with pytest.raises(UserError, match="SERPER_API_KEY: is not set"):
        Chain([{"web": "http://127.0.0.1:9/search"}])
