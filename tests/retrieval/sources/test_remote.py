"""Searching over HTTP: our server and others' of the same contract, and servers that fail."""

import asyncio
import json

import pytest
from json_service import Answer, json_service

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval.chain import Chain
from notewriter.retrieval.sources.remote import SOURCE, Remote, RemoteOptions, read_reply, reply_of

RIVER = Passage("7", "River", "It flows.\nIt crosses a town.")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)


def search(url, query="river", top_k=3, scope=None, **options):
    async def run():
        remote = Remote(RemoteOptions(url=url, **options))
        try:
            await remote.check()
            return await remote.search(query, top_k, scope)
        finally:
            await remote.close()

    return asyncio.run(run())


def searchr1(documents):
    """Answers as Search-R1's server does: no /health, and every document wrapped with its score."""

    def answer(request):
        if request.path != "/retrieve" or request.method != "POST":
            return Answer(404, {"detail": "Not Found"})
        asked = request.json
        assert set(asked) == {"queries", "topk", "return_scores"}
        assert asked["return_scores"] is True
        found = [{"document": document, "score": 0.5} for document in documents[: asked["topk"]]]
        return {"result": [found for _ in asked["queries"]]}

    return answer


def test_a_server_of_search_r1_is_searched():
    documents = [
        {"id": "12", "contents": '"River"\nIt flows.'},
        {"title": "Town", "text": "It has a mayor.", "contents": '"Town"\nIt has a mayor.'},
    ]
    with json_service(searchr1(documents)) as service:
        first, second = search(service.url)
        assert search(f"{service.url}/retrieve") == [first, second]
    assert first == Passage("12", "River", "It flows.")
    # Its BM25 server leaves ids out: the same passage has the same id in every search.
    assert (second.title, second.text, len(second.id)) == ("Town", "It has a mayor.", 16)


@pytest.mark.parametrize("key", ["docid", "_id"])
def test_a_document_keeps_the_id_of_pyserinis_and_of_beirs_corpora(key):
    documents = [{key: "MED-10", "title": "River", "text": "It flows."}]
    assert read_reply({"result": [documents]}, 1) == [[Passage("MED-10", "River", "It flows.")]]


def test_a_title_keeps_its_own_quotation_marks():
    titles = ['"Heroes" (album)', 'The song "Changes"', '"Low"']
    documents = [{"id": "1", "contents": f'"{title}"\nIt plays.'} for title in titles]
    (found,) = read_reply({"result": [documents]}, 1)
    assert [each.title for each in found] == titles


def test_a_search_is_restricted_in_the_client_where_the_server_cannot():
    documents = [{"id": str(number), "contents": f'"Page {number}"\ntext'} for number in range(200)]
    with json_service(searchr1(documents)) as service:
        found = search(service.url, scope={"3", "Page 150"}, top_k=5)
    assert [passage.id for passage in found] == ["3", "150"]


def test_what_is_served_is_what_is_read():
    assert read_reply(json.loads(json.dumps(reply_of([[RIVER], []], scores=True))), 2) == [[RIVER], []]
    assert read_reply(reply_of([[RIVER]], scores=False), 1) == [[RIVER]]
    (document,) = reply_of([[RIVER]], scores=False)["result"][0]
    # What Search-R1's own client reads: the title on the first line of the contents.
    assert document["contents"].split("\n")[0] == '"River"'


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ([], "result must be list"),
        ({"result": [[1]]}, r"result\[0\]\[0\] must be dict"),
        ({"result": [[], []]}, "2 results for 1 queries"),
        ({"result": [[{"document": {"id": "1"}}]]}, "a document without contents"),
        ({"result": [[{"document": "text"}]]}, "a document that is not an object"),
    ],
)
def test_a_reply_of_another_form_is_asked_for_again_and_then_named(reply, problem):
    with json_service(lambda request: reply) as service:
        with pytest.raises(UserError, match=f"no usable reply after .* attempts .*{problem}"):
            search(service.url, attempts=2)
        assert sum(request.path == "/retrieve" for request in service.requests) == 2


@pytest.mark.parametrize(
    "fault",
    [
        Answer(500, {"detail": "out of memory"}),
        Answer(503, headers={"Retry-After": "0"}),
        Answer(429),
        Answer(drop=True),
        Answer(body=b'{"result": [['),
        Answer(late=1.0, body={"result": [[]]}),
    ],
    ids=["500", "503", "429", "dropped", "cut", "late"],
)
def test_a_server_that_fails_once_is_asked_again(fault):
    good = searchr1([{"id": "12", "contents": '"River"\nIt flows.'}])
    pending = [fault]

    def answer(request):
        if request.path == "/retrieve" and request.json["queries"] == ["river"] and pending:
            return pending.pop()
        return good(request)

    with json_service(answer) as service:
        assert [passage.id for passage in search(service.url, timeout=0.5)] == ["12"]


def test_a_server_that_never_answers_is_one_clear_line():
    out = Answer(500, {"detail": "out\nof memory"})
    with json_service(lambda request: out) as service, pytest.raises(UserError) as error:
        search(service.url, attempts=2)
    assert str(error.value) == (
        f'{service.url}/retrieve: no usable reply after 2 attempts (HTTP 500: {{"detail": "out\\nof memory"}}); '
        "finished questions are kept; run the same command again when it is up"
    )
    with pytest.raises(UserError, match=r"http://127.0.0.1:9/retrieve: no usable reply after 2 attempts"):
        search("http://127.0.0.1:9", attempts=2)


def test_a_refusal_is_not_asked_again():
    with json_service(lambda request: Answer(422, {"detail": "queries: too many"})) as service:
        with pytest.raises(UserError, match=r"refuses the request .*too many"):
            search(service.url)
        assert sum(request.path == "/retrieve" for request in service.requests) == 1


def test_a_key_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("RETRIEVER_KEY", "sesame-12345678")

    def answer(request):
        return Answer(401, {"detail": f"bad {request.headers['authorization']}"})

    with json_service(answer) as service, pytest.raises(UserError) as error:
        search(service.url, api_key_env="RETRIEVER_KEY")
    assert "rejects the key; set a valid one in the environment variable RETRIEVER_KEY" in str(error.value)
    assert "sesame" not in str(error.value)


@pytest.mark.parametrize("url", [" ", "node7:8001", "http://u:p@node7:8001", "http://node7:8001/?key=1"])
def test_an_address_that_cannot_be_used_is_refused(url):
    with pytest.raises(UserError, match="retriever: url"):
        Chain([{"url": url}])


async def test_waiting_queries_share_requests_and_one_that_fails_does_not_lose_the_others():
    def answer(request):
        if request.path != "/retrieve":
            return Answer(404)
        queries = request.json["queries"]
        return {"result": [[{"document": {"id": query, "contents": f"{query}\n"}}] for query in queries]}

    with json_service(answer) as service:
        remote = Remote(RemoteOptions(url=service.url))
        found = await asyncio.gather(*(remote.search(f"q{number}", 1) for number in range(300)))
        await remote.close()
    assert [passages[0].id for passages in found] == [f"q{number}" for number in range(300)]
    assert len(service.requests) < 300


def test_only_our_servers_have_a_fingerprint():
    with json_service(lambda request: {"schema": "notewriter/retriever/1", "fingerprint": "f"}) as service:
        assert SOURCE.identity(RemoteOptions(url=service.url)) == "f"
    with json_service(lambda request: {"status": "ok"}) as service:
        assert SOURCE.identity(RemoteOptions(url=service.url)) is None
    assert SOURCE.identity(RemoteOptions(url=service.url)) is None
