"""`notewriter retrieval-eval`: tables of quality and latency for any chain, resumed after a kill."""

import json

import pytest
from fake_endpoint import fake_endpoint
from json_service import json_service
from tiny_world import tiny_world, write_config

from notewriter.datasets import load_questions
from notewriter.ground.errors import UserError
from notewriter.results import retrieval_eval
from notewriter.results.retrieval import measures
from notewriter.retrieval.sources.index import open_index


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), questions=12)


@pytest.fixture
def run(world, tmp_path):
    def run(**options):
        settings = {"dataset": world["dataset"], "path": world["path"], "output_dir": str(tmp_path / "run"), **options}
        retrieval_eval.main(write_config(tmp_path / "retrieval.yaml", settings))
        return tmp_path / "run"

    return run


def chains(world, **options):
    index = {"index": world["index"]}
    return {"bm25": [index], "one per title": [index, {"distinct": "title"}], **options}


def test_the_measures_are_those_of_the_index_searched_by_hand(run, world, capsys):
    folder = run(chains=chains(world))
    results = json.loads((folder / "retrieval.json").read_text())
    retriever = open_index(world["index"])
    questions = [each for each in load_questions("jsonl", world["path"]) if each.supporting_ids]
    rows = [
        measures([p.id for p in retriever.search(each.question, 10)], each.supporting_ids, [2, 5, 10])
        for each in questions
    ]
    bm25 = results["chains"]["bm25"]
    for name, interval in bm25["measures"].items():
        assert interval["mean"] == pytest.approx(sum(row[name] for row in rows) / len(rows))
        assert interval["low"] <= interval["mean"] <= interval["high"]
    assert results["questions"] == len(questions)
    assert 0 < bm25["milliseconds"]["p50"] <= bm25["milliseconds"]["p95"] <= bm25["milliseconds"]["p99"]
    assert bm25["parts"] == []
    parts = results["chains"]["one per title"]["parts"]
    assert [part["part"] for part in parts] == [world["index"], "distinct title"]
    assert set(results["differences"]) == {"one per title"}
    text = (folder / "retrieval.md").read_text()
    assert text in capsys.readouterr().out
    assert "**Difference from bm25, paired by question" in text


def test_a_run_that_was_cut_searches_only_for_what_is_missing(run, world, monkeypatch):
    folder = run(chains=chains(world))
    journal = folder / "searches.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-3]) + lines[-3][:20])
    opened = []
    chain = retrieval_eval.Chain

    def counted(parts):
        opened.append(parts)
        return chain(parts)

    monkeypatch.setattr(retrieval_eval, "Chain", counted)
    before = json.loads((folder / "retrieval.json").read_text())
    run(chains=chains(world))
    assert len(opened) == 1
    assert len(journal.read_text().splitlines()) == len(lines)
    after = json.loads((folder / "retrieval.json").read_text())
    for name in before["chains"]:
        assert after["chains"][name]["measures"] == before["chains"][name]["measures"]


def test_the_speed_of_a_reranking_model_is_that_of_calls_and_not_of_a_cache(run, world):
    with fake_endpoint(lambda request: "[1]") as endpoint:
        step = {"llm_rerank": endpoint.model, "base_url": endpoint.base_url}
        run(chains=chains(world, reranked=[{"index": world["index"]}, step]))
        asked = len(endpoint.requests)
    questions = [each for each in load_questions("jsonl", world["path"]) if each.supporting_ids]
    # One to warm up, then each question.
    assert asked == 1 + len(questions)


def test_one_retriever_needs_no_name(run, world):
    results = json.loads((run(index=[world["index"]], top_k=[3]) / "retrieval.json").read_text())
    assert list(results["chains"]) == ["retriever"]
    assert list(results["chains"]["retriever"]["measures"]) == ["recall@3", "MRR@3", "nDCG@3"]
    assert results["differences"] == {}


def test_ids_of_another_corpus_are_warned_of(run, caplog):
    with json_service(
        lambda request: (
            {"result": [[{"id": "x", "contents": "t\nt"}] for _ in json.loads(request.body)["queries"]]}
            if request.path == "/retrieve"
            else []
        )
    ) as service:
        run(retriever={"url": service.url})
    assert "finds no supporting passage; are its ids those of the questions' supporting_ids?" in caplog.text


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give --index or --retriever for one retriever, or --chains"),
        ({"chains": {"a": [{"index": "absent"}]}}, "absent: contains no index"),
        ({"chains": {"a": [{"idx": "absent"}]}}, "chains: a: retriever: .* must have exactly one of the keys"),
        ({"chains": {"a": 3}}, "chains: a must be list"),
        ({"chains": {"a": []}}, "chains: a: is empty"),
        ({"index": ["i"], "chains": {"a": [{"index": "i"}]}}, "give --index or --retriever for one retriever"),
        ({"index": ["i"], "top_k": [0]}, "top_k"),
    ],
)
def test_what_cannot_be_measured_is_named(run, options, problem):
    with pytest.raises(UserError, match=problem):
        run(**options)


def test_questions_without_supporting_passages_are_refused(run, world, tmp_path):
    (tmp_path / "questions.jsonl").write_text('{"id": "q", "question": "Who?", "answers": ["Mira"]}\n')
    with pytest.raises(UserError, match="no question names its supporting passages"):
        run(path=str(tmp_path / "questions.jsonl"), index=[world["index"]])
