"""Existing indexes of Elasticsearch and OpenSearch, against a stand-in of their documented API."""

import pytest
from fake_search_engine import fake_search_engine
from json_service import Answer

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval.chain import Chain, fingerprint, parts_of
from notewriter.rollouts.identity import contents

DOCUMENTS = {
    "w1": {"title": "River", "text": "The river crosses a town."},
    "w2": {"title": "Town", "text": "The town has a museum. The museum has clocks."},
    "w3": {"title": "Mayor", "text": "The mayor opened the museum."},
}


@pytest.fixture(params=["elasticsearch", "opensearch"])
def engine(request):
    return request.param


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)


async def search(engine, server, query, top_k=3, scope=None, **options):
    chain = Chain([{engine: server.url, "name": "wiki", "attempts": 3, **options}])
    try:
        await chain.check()
        return (await chain.search(query, top_k, scope)).passages
    finally:
        await chain.close()


async def ids(*arguments, **options):
    return [passage.id for passage in await search(*arguments, **options)]


async def test_an_index_is_searched_by_title_and_text(engine):
    with fake_search_engine(DOCUMENTS) as server:
        assert await ids(engine, server, "Which museum, which museum's town?") == ["w2", "w1", "w3"]
        assert await search(engine, server, "river", 1) == [Passage("w1", "River", "The river crosses a town.")]
        assert await ids(engine, server, "?!") == []
        asked = server.service.requests[-2].json
    # Each word of a query counts once, as in our own index.
    assert asked["query"]["multi_match"]["query"] == "river"


async def test_a_search_is_restricted_to_ids_and_titles(engine):
    with fake_search_engine(DOCUMENTS) as server:
        assert await ids(engine, server, "museum", scope={"w3", "River"}) == ["w3"]


async def test_fields_say_where_a_document_has_its_id_title_and_text(engine):
    documents = {
        "a": {"pid": 7, "page": {"name": "River"}, "paragraph_text": "It crosses a town.", "vector": [0.1]},
        "b": {"pid": 8, "page": {"name": "Town"}, "paragraph_text": "It has a river."},
    }
    fields = {"id": "pid", "title": "page.name", "text": "paragraph_text"}
    with fake_search_engine(documents) as server:
        passages = await search(engine, server, "town", fields=fields)
        assert passages == [Passage("7", "River", "It crosses a town."), Passage("8", "Town", "It has a river.")]
        untitled = await search(engine, server, "town", fields={"title": "", "text": "paragraph_text"})
        assert untitled == [Passage("a", "", "It crosses a town.")]
        with pytest.raises(UserError, match=r"/wiki: document 'a' has no text in the field 'title'; set fields"):
            await search(engine, server, "town", fields={"text": "paragraph_text"})
    with pytest.raises(UserError, match="must be one of id, title, text, not 'txet'"):
        parts_of(None, [{engine: "http://a:9200", "name": "wiki", "fields": {"txet": "x"}}])


async def test_it_is_fused_with_other_sources(engine):
    with fake_search_engine(DOCUMENTS) as server, fake_search_engine({"n1": DOCUMENTS["w1"]}) as other:
        chain = Chain([{engine: each.url, "name": "wiki"} for each in (server, other)])
        found = await chain.search("museum river", 3)
        await chain.close()
    assert {passage.id for passage in found.passages} == {"w1", "w2", "w3"}
    assert [part["part"] for part in found.parts] == [f"{engine} wiki"] * 2


async def test_a_server_that_fails_at_first_is_asked_again_and_then_named(engine):
    with fake_search_engine(DOCUMENTS) as server:
        pending = [Answer(503, {"error": "starting"}), Answer(drop=True)]
        server.fault = lambda request: pending.pop() if pending else None
        assert await ids(engine, server, "river") == ["w1"]
        server.fault = lambda request: Answer(503, {"error": "starting"})
        with pytest.raises(
            UserError, match=r"/wiki/_search: no usable reply after 3 attempts \(starting.*same command"
        ):
            await search(engine, server, "river")
    with pytest.raises(UserError, match=r"/wiki/_search: no usable reply after 3 attempts"):
        await search(engine, server, "river")


async def test_an_absent_index_is_named(engine):
    problem = r"/towns/_search: refuses the request \(HTTP 404: .*no such index"
    with fake_search_engine(DOCUMENTS) as server, pytest.raises(UserError, match=problem):
        await search(engine, server, "river", name="towns")


async def test_a_key_is_sent_and_shown_nowhere(engine, monkeypatch):
    monkeypatch.setenv("ENGINE_KEY", "secret-0123456789")
    with fake_search_engine(DOCUMENTS) as server:
        assert await ids(engine, server, "river", api_key_env="ENGINE_KEY") == ["w1"]
        assert server.service.requests[-1].headers["authorization"] == "ApiKey secret-0123456789"
        server.fault = lambda request: Answer(401, {"error": "secret-0123456789 is no key"})
        with pytest.raises(UserError, match="rejects the key; set a valid one in the environment variable ENGINE_KEY"):
            await search(engine, server, "river", api_key_env="ENGINE_KEY")


def test_an_index_is_known_by_what_the_engine_reports_wherever_it_is(engine):
    def known(server, **options):
        part = {engine: server.url, "name": "wiki", **options}
        return contents({"retriever": [{"index": "absent"}, part]}), fingerprint([part])

    with fake_search_engine(DOCUMENTS) as server, fake_search_engine(DOCUMENTS) as elsewhere:
        first = known(server)
        assert list(first[0]) == ["retriever: server 1"]
        assert known(elsewhere, attempts=2) == first
        hashes = {first[1], known(server, fields={"text": "title"})[1]}
        for attribute, value in (("changes", 4), ("uuid", "other"), ("documents", dict(list(DOCUMENTS.items())[1:]))):
            setattr(server, attribute, value)
            hashes.add(known(server)[1])
        assert len(hashes) == 5
    # A server that cannot be asked is not compared.
    assert known(server)[0] == {}
