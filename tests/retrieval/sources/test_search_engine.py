"""Elasticsearch and OpenSearch through their official clients, against a stand-in of their documented API."""

import json

import pytest
from fake_search_engine import fake_search_engine
from json_service import Answer

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25, bulk_index, corpus_fingerprint, encoders
from notewriter.retrieval.chain import Chain, fingerprint
from notewriter.retrieval.sources import search_engine
from notewriter.rollouts.identity import contents

pytest.importorskip("elasticsearch", reason="needs the extra `search-engines`")
pytest.importorskip("opensearchpy", reason="needs the extra `search-engines`")

PASSAGES = [
    Passage("w1", "River", "The river crosses a town."),
    Passage("w2", "Town", "The town has a museum. The museum has clocks."),
    Passage("w3", "Mayor", "The mayor opened the museum."),
]


@pytest.fixture(params=["elasticsearch", "opensearch"])
def engine(request):
    return request.param


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("tenacity.wait_random_exponential.__call__", lambda self, state: 0)


@pytest.fixture
def corpus(tmp_path):
    def write(passages=PASSAGES):
        lines = (json.dumps({"id": p.id, "title": p.title, "text": p.text}) + "\n" for p in passages)
        (tmp_path / "corpus.jsonl").write_text("".join(lines))
        return str(tmp_path / "corpus.jsonl")

    return write


def index(engine, server, corpus, *options):
    bulk_index.main(["--path", corpus, "--name", "wiki", f"--{engine}", server.url, "--attempts", "3", *options])


async def search(engine, server, query, top_k=3, scope=None, **options):
    chain = Chain([{engine: server.url, "name": "wiki", "attempts": 3, **options}])
    try:
        await chain.check()
        return [passage.id for passage in (await chain.search(query, top_k, scope)).passages]
    finally:
        await chain.close()


async def test_a_corpus_is_indexed_and_searched(engine, corpus, capsys):
    with fake_search_engine() as server:
        index(engine, server, corpus())
        assert "indexed 3 passages" in capsys.readouterr().out
        assert await search(engine, server, "Which museum, which town?") == ["w2", "w1", "w3"]
        assert await search(engine, server, "museum", scope={"w3", "River"}) == ["w3"]
        assert await search(engine, server, "?!") == []
        body = server.indexes["wiki"]
    assert body["settings"]["analysis"]["analyzer"]["passages"]["filter"][-1] == "english"
    assert body["mappings"]["properties"]["contents"]["analyzer"] == "passages"


async def test_it_is_fused_with_a_local_index_of_the_same_corpus(engine, corpus, tmp_path):
    path = corpus()
    bm25.build(PASSAGES, tmp_path / "index", corpus_fingerprint("jsonl", path))
    with fake_search_engine() as server:
        index(engine, server, path)
        chain = Chain([{"index": str(tmp_path / "index")}, {engine: server.url, "name": "wiki"}])
        await chain.check()
        found = await chain.search("museum", 3)
        await chain.close()
    assert {passage.id for passage in found.passages} == {"w2", "w3"}
    assert [part["part"] for part in found.parts] == [str(tmp_path / "index"), f"{engine} wiki bm25"]


def test_an_interrupted_run_goes_on_where_it_was_cut(engine, corpus, monkeypatch):
    monkeypatch.setattr(search_engine, "CHUNK", 10)
    passages = [Passage(f"p{number}", f"Page {number}", "text") for number in range(35)]
    with fake_search_engine() as server:
        bulks = []

        def fault(request):
            if "_bulk" in request.path:
                bulks.append(request)
                return Answer(400, {"error": "stop"}) if len(bulks) == 3 else None
            return None

        server.fault = fault
        with pytest.raises(UserError, match=r"/wiki: .*400"):
            index(engine, server, corpus(passages))
        assert len(server.documents) == 20
        index(engine, server, corpus(passages))
        # The last request before the cut is repeated, since a server may have taken a part of it.
        assert len(bulks) == 3 + 3
        assert [document["position"] for document in server.documents.values()] == list(range(35))
        assert list(server.documents) == [passage.id for passage in passages]


async def test_a_server_that_fails_at_first_is_asked_again_and_then_named(engine, corpus):
    with fake_search_engine() as server:
        index(engine, server, corpus())
        pending = [Answer(503, {"error": "starting"}), Answer(drop=True), Answer(429, {"error": "busy"})]

        def fault(request):
            return pending.pop() if pending and "_search" in request.path else None

        server.fault = fault
        pending.pop(0)
        assert await search(engine, server, "river") == ["w1"]
        server.fault = lambda request: Answer(503, {"error": "starting"})
        with pytest.raises(UserError, match=r"/wiki: no reply after 3 attempts .*503.*run the same command again"):
            await search(engine, server, "river")


async def test_an_index_that_is_absent_or_not_ours_is_refused(engine, corpus):
    with fake_search_engine() as server:
        with pytest.raises(UserError, match=r"/wiki: no such index; make it with `notewriter bulk-index`"):
            await search(engine, server, "river")
        server.indexes["wiki"] = {"mappings": {"properties": {}}}
        with pytest.raises(UserError, match="is not an index of this version"):
            await search(engine, server, "river")
        with pytest.raises(UserError, match="is not an index of this version"):
            index(engine, server, corpus())
        del server.indexes["wiki"]
        index(engine, server, corpus())
        with pytest.raises(UserError, match="is an index of another corpus or encoder"):
            index(engine, server, corpus(PASSAGES[:2]))
        with pytest.raises(UserError, match="has no embeddings; make it with"):
            await search(engine, server, "river", search="knn")


def test_an_index_is_known_by_its_corpus_wherever_it_is_and_a_refilled_one_is_another(engine, corpus):
    def known(server, **options):
        part = {engine: server.url, "name": "wiki", **options}
        return contents({"retriever": [{"index": "absent"}, part]}), fingerprint([part])

    with fake_search_engine() as server, fake_search_engine() as elsewhere:
        without = known(server)
        index(engine, server, corpus())
        index(engine, elsewhere, corpus())
        first = known(server)
        assert list(first[0]) == ["retriever: server 1"]
        assert known(elsewhere, attempts=2) == first
        # Another corpus under the same name, and a passage that was added past `bulk-index`.
        server.indexes.clear()
        index(engine, server, corpus([*PASSAGES[1:], PASSAGES[0]]))
        elsewhere.documents["w4"] = elsewhere.documents["w1"]
        assert len({each[1] for each in (without, first, known(server), known(elsewhere))}) == 4
    assert known(server) == without
    assert without[0] == {}


async def test_a_server_that_is_not_there_is_named(engine):
    with fake_search_engine() as server:
        pass
    with pytest.raises(UserError, match=r"/wiki: no reply after 3 attempts"):
        await search(engine, server, "river")


@pytest.mark.parametrize("address", ["http://node7", "http://日本.example"])
def test_an_address_without_a_port_is_named(corpus, address):
    with pytest.raises(UserError, match=r"elasticsearch: .*; write it as http://HOST:9200"):
        bulk_index.main(["--path", corpus(), "--name", "wiki", "--elasticsearch", address])


def test_one_server_has_to_be_given(corpus):
    with pytest.raises(UserError, match="give the address of one server"):
        bulk_index.main(["--path", corpus(), "--name", "wiki"])


class Letters:
    """An encoder whose vectors count letters."""

    prompts: dict[str, str] = {}  # noqa: RUF012

    def encode_query(self, texts, **options):
        import numpy as np

        counts = np.array([[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts])
        return counts / np.linalg.norm(counts + 1e-9, axis=1, keepdims=True)

    encode_document = encode_query


def test_an_encoder_that_is_known_by_name_has_its_prompts_as_in_a_dense_index(monkeypatch):
    monkeypatch.setattr(encoders, "_load", lambda model, device: Letters())
    options = encoders.Encoder(encoder="intfloat/e5-base-v2")
    assert search_engine.load_embedder(options)[1:] == ("query: ", "passage: ")


async def test_knn_search_finds_the_nearest_passages(engine, corpus, tmp_path, monkeypatch):
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    monkeypatch.setattr(encoders, "_load", lambda model, device: Letters())
    with fake_search_engine() as server:
        index(engine, server, corpus(), "--encoder", str(encoder))
        mapping = server.indexes["wiki"]["mappings"]["properties"]["embedding"]
        assert (mapping.get("dims") or mapping.get("dimension")) == 26
        query = f"{PASSAGES[2].title}\n{PASSAGES[2].text}"
        assert (await search(engine, server, query, 1, search="knn")) == ["w3"]
        assert (await search(engine, server, query, 2, {"w1"}, search="knn")) == ["w1"]
        (encoder / "config.json").write_text('{"changed": true}')
        with pytest.raises(UserError, match="has changed since; make the index again"):
            await search(engine, server, query, search="knn")
