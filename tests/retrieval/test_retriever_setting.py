"""`retriever:` in the commands: a chain instead of an index, a server's address that may change, faults on the way."""

import json

import pytest
import yaml
from fake_endpoint import fake_endpoint
from json_service import Answer, json_service
from tiny_world import run_config, tiny_world

from notewriter.evaluation import ask, evaluate
from notewriter.ground.errors import UserError
from notewriter.retrieval.sources.index import open_index
from notewriter.retrieval.sources.remote import SCHEMA, reply_of


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)


@pytest.fixture
def run(world, tmp_path):
    """Evaluate vanilla RAG with a retriever; returns its folder."""

    def run(retriever, name="run", **options):
        settings = {key: value for key, value in world.items() if key != "index"}
        with fake_endpoint() as endpoint:
            options = {"method": "vanilla", "concurrency": 1, "retriever": retriever, **options}
            evaluate.main(run_config(tmp_path, name, settings, endpoint, options))
        return tmp_path / name

    return run


def served(world, fingerprint="f", faults=()):
    """Answers as `serve retriever` does."""
    index, pending = open_index(world["index"]), list(faults)

    def answer(request):
        if request.path == "/health":
            return {"schema": SCHEMA, "status": "ok", "corpus": "world", "fingerprint": fingerprint}
        asked = request.json
        if pending and (fault := pending.pop(0)):
            return fault
        return reply_of([index.search(query, asked["topk"]) for query in asked["queries"]], scores=True)

    return answer


def traces(folder):
    return [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]


def found(folder):
    return {trace["question_id"]: trace["steps"][0]["passages"] for trace in traces(folder)}


def test_a_chain_and_a_server_find_what_the_index_finds(run, world):
    expected = found(run(None, "index", index=[world["index"]]))
    chain = run([{"index": world["index"]}, {"distinct": "text"}], "chain")
    assert found(chain) == expected
    parts = traces(chain)[0]["steps"][0]["parts"]
    assert [part["part"] for part in parts] == [world["index"], "distinct text"]
    with json_service(served(world)) as service:
        # In YAML a single part needs no list.
        server = run({"url": service.url}, "server")
    assert found(server) == expected
    assert traces(server)[0]["steps"][0]["parts"] is None
    assert yaml.safe_load((server / "config.yaml").read_text())["retriever"] == [{"url": service.url}]


def test_what_was_finished_before_a_server_failed_is_kept_and_the_address_may_change(run, world, capsys):
    down = [None, None, *[Answer(503)] * 10]
    problem = r"/retrieve: no usable reply after 3 attempts \(HTTP 503\); finished"
    with json_service(served(world, faults=down)) as service, pytest.raises(UserError, match=problem):
        run({"url": service.url, "attempts": 3})
    with json_service(served(world)) as other:
        folder = run({"url": other.url, "attempts": 5})
        searches = [request for request in other.requests if request.path == "/retrieve"]
    assert len(traces(folder)) == 6
    assert len(searches) == 4
    with (
        json_service(served(world, fingerprint="g")) as third,
        pytest.raises(UserError, match="other contents of retriever: server 0, which have changed since"),
    ):
        run({"url": third.url})


def test_a_web_search_may_be_asked_at_another_address(run, monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "serper-0123456789")

    def answer(request):
        return {"organic": [{"title": "Town", "link": "https://a.example", "snippet": "A town."}]}

    with json_service(answer) as here, json_service(answer) as there:
        folder = run({"web": f"{here.url}/search"})
        before = traces(folder)
        run({"web": f"{there.url}/search", "timeout": 5.0})
        assert traces(folder) == before
        assert there.requests == []


def test_a_run_with_another_chain_is_refused(run, world):
    run([{"index": world["index"]}])
    with pytest.raises(UserError, match="contains a run with retriever"):
        run([{"index": world["index"]}, {"distinct": "text"}])


def test_index_and_retriever_exclude_each_other(run, world):
    with pytest.raises(UserError, match="index and retriever are both given"):
        run([{"index": world["index"]}], index=[world["index"]])


@pytest.mark.parametrize(
    ("retriever", "problem"),
    [
        ([{"indx": "a"}], "must have exactly one of the keys index, documents, url"),
        ("index", "retriever"),
        ([], "method vanilla retrieves; add --index"),
    ],
)
def test_a_retriever_that_is_none_is_named(run, retriever, problem):
    with pytest.raises(UserError, match=problem):
        run(retriever)


def test_a_chain_is_written_on_the_command_line_as_json(world, tmp_path, capsys):
    with fake_endpoint() as endpoint:
        ask.main(
            [
                *("Who?", "--method", "vanilla", "--retriever", json.dumps({"index": world["index"]})),
                *('{"distinct": "title"}', "--base_url", endpoint.base_url, "--model", endpoint.model),
                *("--cache", str(tmp_path / "cache.sqlite"), "--output_dir", str(tmp_path / "ask")),
            ]
        )
    assert "search: Who?" in capsys.readouterr().out


def test_a_dry_run_searches_the_chain(run, world):
    folder = run([{"index": world["index"]}, {"llm_rerank": "m", "base_url": "http://127.0.0.1:9/v1"}], dry_run=True)
    assert json.loads((folder / "estimate.json").read_text())["questions"] == 6
