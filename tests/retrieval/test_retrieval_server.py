"""`notewriter serve retriever`: the contract, its limits and health, over a real connection."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from json_service import json_service

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25, server
from notewriter.retrieval.chain import Chain, Found
from notewriter.retrieval.server import RetrieverServeArguments, make_app
from notewriter.retrieval.sources.remote import SCHEMA

uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `serve`")

PASSAGES = [Passage(f"p{number}", f"Town {number}", f"The town {number} has a museum.") for number in range(20)]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server") / "index"
    bm25.build(PASSAGES, folder, "towns")
    return str(folder)


@contextlib.contextmanager
def served(chain, **options):
    """The address of a server in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = make_app(chain, RetrieverServeArguments(**options))
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    thread = threading.Thread(target=lambda: asyncio.run(running.serve([listener])))
    thread.start()
    try:
        while not running.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture(scope="module")
def url(index):
    with served(Chain([{"index": index}])) as url:
        yield url


def ask(url, body, path="/retrieve"):
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data)) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_every_query_gets_the_passages_of_the_index(url, index):
    queries = ["town 3", "museum 12", "..."]
    status, reply = ask(url, {"queries": queries, "topk": 2, "return_scores": True})
    assert status == 200
    result = json.loads(reply)["result"]
    retriever = bm25.BM25(index)
    for query, found in zip(queries, result, strict=True):
        assert [each["document"]["id"] for each in found] == [p.id for p in retriever.search(query, 2)]
        assert [each["score"] for each in found] == [1.0, 0.5][: len(found)]


def test_topk_and_scores_may_be_left_out(url):
    status, reply = ask(url, {"queries": ["town"]})
    assert status == 200
    (found,) = json.loads(reply)["result"]
    assert len(found) == 5
    assert set(found[0]) == {"id", "title", "text", "contents"}
    assert ask(url, {"queries": ["town"], "topk": None}) == (status, reply)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "is not JSON"),
        ({}, "request has no 'queries'"),
        ({"queries": "town"}, "queries must be list"),
        ({"queries": []}, "queries: [] is too short"),
        ({"queries": ["q"] * 513}, "513 queries; send at most 512"),
        ({"queries": ["q"], "topk": 1001}, "topk: 1001 is not between 1 and 1000"),
        ({"queries": ["q"], "topk": -1}, "topk: -1 is not between"),
        ({"queries": ["q"], "topk": "3"}, "topk must be int"),
        (b" " * (5 * 2**20), "larger than 4 MiB"),
    ],
)
def test_a_request_that_is_wrong_is_answered_with_what_is_wrong(url, body, problem):
    status, reply = ask(url, body)
    assert status == 422
    assert problem in json.loads(reply)["detail"]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "rebound.example:80"}],
)
def test_a_web_page_is_refused(url, headers):
    request = urllib.request.Request(f"{url}/retrieve", json.dumps({"queries": ["town"]}).encode(), headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 403 and "comes from a web page" in refused.value.read().decode()


def test_any_text_can_be_searched_for(url):
    for query in ("\ud800", "\0", "é" * 10_000, '"', ""):
        assert ask(url, {"queries": [query]})[0] == 200


def test_health_says_what_is_served(url, index):
    health = json.loads(ask(url, None, "/health")[1])
    assert (health["schema"], health["status"], health["corpus"]) == (SCHEMA, "ok", "towns")
    assert health["fingerprint"] == Chain([{"index": index}]).fingerprint


def test_a_server_over_another_is_known_by_what_that_one_serves_and_not_by_how_it_is_asked(url, index):
    def known(address, **options):
        with served(Chain([{"url": address, **options}])) as outer:
            return json.loads(ask(outer, None, "/health")[1])["fingerprint"]

    before = known(url)
    assert known(url, attempts=2, timeout=5.0) == before
    with served(Chain([{"index": index}, {"distinct": "title"}])) as other:
        assert known(other) != before


async def test_a_chain_with_a_url_finds_what_the_index_finds(url, index):
    remote, local = Chain([{"url": url}]), Chain([{"index": index}])
    await remote.check()
    assert remote.corpus == local.corpus == "towns"
    for scope in (None, {"p3", "Town 5"}):
        assert (await remote.search("museum", 4, scope)).passages == (await local.search("museum", 4, scope)).passages
    await remote.close()
    await local.close()


async def test_documents_behind_a_server_keep_their_order(index):
    scope = dict.fromkeys(["p7", "p12", "p3", "p1", "p15"])
    with served(Chain([{"documents": index}])) as url:
        remote = Chain([{"url": url}])
        await remote.check()
        assert [passage.id for passage in (await remote.search("museum", 5, scope)).passages] == list(scope)
        await remote.close()


class Slow:
    """A chain that takes its time; `most` is how many of its searches ran at once."""

    corpus = fingerprint = ""
    at_once = most = 0

    async def search(self, query, top_k, scope):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.05)
        self.at_once -= 1
        if query == "fails":
            raise UserError("index: is damaged; build it again")
        return Found([], [])

    async def close(self):
        pass


def test_searches_beyond_the_limits_wait_or_are_refused(monkeypatch):
    monkeypatch.setattr(server, "MAX_WAITING", 4)
    chain = Slow()
    with served(chain, concurrency=2) as url:
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(ask(url, {"queries": ["q"]}))) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        statuses = sorted(status for status, _ in replies)
        assert chain.most == 2
        assert statuses[0] == 200 and statuses[-1] == 503 and set(statuses) == {200, 503}
        # A request that is larger than the limit is answered when nothing else is waiting.
        assert ask(url, {"queries": ["q"] * 6})[0] == 200
        assert ask(url, {"queries": ["fails"]}) == (502, '{"detail":"index: is damaged; build it again"}')


HALF_SENT = {
    "nothing": b"",
    "half a header": b"POST /retrieve HTT",
    "half a body": b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
}


def opened(url, sent):
    """A connection on which something was sent."""
    connection = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60)
    connection.sendall(sent)
    return connection


def test_a_server_stops_though_requests_are_half_sent_and_a_search_does_not_end():
    searched, over = threading.Event(), threading.Event()

    def answer(request):
        if request.path == "/health":
            return {"schema": SCHEMA, "status": "ok", "corpus": "", "fingerprint": "f"}
        searched.set()
        over.wait(120)
        return {"result": [[]]}

    with json_service(answer) as slow, contextlib.ExitStack() as connections:
        options = ["--retriever", json.dumps({"url": slow.url}), "--port", "0"]
        command = [sys.executable, "-m", "notewriter.cli", "serve", "retriever", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        connections.callback(process.kill)
        connections.callback(over.set)
        (url,) = re.findall(r"http://\S+:\d+", process.stdout.readline())
        half_sent = [connections.enter_context(opened(url, sent)) for sent in HALF_SENT.values()]
        body = b'{"queries": ["town"]}'
        head = b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        whole = connections.enter_context(opened(url, head + body))
        assert searched.wait(60)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGTERM
        assert "Traceback" not in errors
        assert whole.recv(1000).startswith(b"HTTP/1.1 503")
        replies = [connection.recv(1000) for connection in half_sent]
        assert replies[:2] == [b"", b""] and replies[2].startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], "there is nothing to serve; add --index"),
        (["--index", "absent"], "absent: contains no index"),
        (["--retriever", '{"index": "a"}', '{"within": "pages"}'], "within restricts the searches of a question"),
        (["--retriever", "a"], "is not a JSON object"),
    ],
)
def test_what_cannot_be_served_is_named(argv, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=problem):
        server.main(argv)


@pytest.mark.parametrize("host", ["münchen.invalid", "é" * 70])
def test_a_host_that_is_not_there_is_named(index, host):
    with pytest.raises(UserError, match=f"^{host}:0: cannot listen there .*choose another --host"):
        server.main(["--index", index, "--host", host, "--port", "0"])


def test_a_port_in_use_is_named(index):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"127.0.0.1:{port}: cannot listen there .*in use"):
            server.main(["--index", index, "--port", str(port)])
