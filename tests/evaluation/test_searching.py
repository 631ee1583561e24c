"""`notewriter evaluate --chains`: quality and latency of any chain of retrievers, resumed after a kill."""

import json
from pathlib import Path

import pytest
from fake_endpoint import fake_endpoint
from json_service import json_service
from tiny_world import tiny_world, write_config

from notewriter.datasets import load_questions
from notewriter.evaluation import evaluate, searching
from notewriter.evaluation.searching import measures
from notewriter.ground.errors import UserError
from notewriter.results.report import write_report
from notewriter.retrieval.sources.index import open_index


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), questions=12)


@pytest.fixture
def run(world, tmp_path):
    def run(**options):
        settings = {"dataset": world["dataset"], "path": world["path"], "output_dir": str(tmp_path / "run"), **options}
        evaluate.main(write_config(tmp_path / "retrieval.yaml", settings))
        return tmp_path / "run"

    return run


def chains(world, **options):
    index = {"index": world["index"]}
    return {"bm25": [index], "one per title": [index, {"distinct": "title"}], **options}


def test_the_measures_are_those_of_the_index_searched_by_hand(run, world, tmp_path, capsys):
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
    assert f"recall@2 {bm25['measures']['recall@2']['mean']:.3f} [" in capsys.readouterr().out
    (section,) = write_report([folder], tmp_path / "report.html")
    found, differences, *_ = section.parts
    assert [row[0] for row in found[2]] == ["bm25", "one per title"]
    assert differences[0] == "Difference from bm25, paired by question"
    assert {row[0] for row in differences[2]} == {f"one per title, {name}" for name in bm25["measures"]}


def test_a_run_that_was_cut_searches_only_for_what_is_missing(run, world, monkeypatch):
    folder = run(chains=chains(world))
    journal = folder / "searches.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-3]) + lines[-3][:20])
    opened = []
    chain = searching.Chain

    def counted(parts):
        opened.append(parts)
        return chain(parts)

    monkeypatch.setattr(searching, "Chain", counted)
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


def test_one_chain_is_compared_with_nothing(run, world, tmp_path):
    folder = run(chains={"bm25": {"index": world["index"]}}, depths=[3])
    (chain,) = json.loads((folder / "retrieval.json").read_text())["chains"].values()
    assert list(chain["measures"]) == ["recall@3", "MRR@3", "nDCG@3"]
    (section,) = write_report([folder], tmp_path / "report.html")
    assert not any("Difference" in caption for caption, *_ in section.parts)


def test_ids_of_another_corpus_are_warned_of(run, caplog):
    with json_service(
        lambda request: (
            {"result": [[{"id": "x", "contents": "t\nt"}] for _ in json.loads(request.body)["queries"]]}
            if request.path == "/retrieve"
            else []
        )
    ) as service:
        run(chains={"served": {"url": service.url}})
    assert "finds no supporting passage; are its ids those of the questions' supporting_ids?" in caplog.text


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"chains": {"a": [{"index": "absent"}]}}, "absent: contains no index"),
        ({"chains": {"a": [{"idx": "absent"}]}}, "chains: a: retriever: .* must have exactly one of the keys"),
        ({"chains": {"a": 3}}, "chains: a must be list"),
        ({"chains": {"a": []}}, "chains: a: is empty"),
        ({"index": ["i"], "chains": {"a": [{"index": "i"}]}}, "both chains and index are set"),
        ({"serve": "models/x", "chains": {"a": [{"index": "i"}]}}, "both chains and serve are set"),
        ({"dry_run": True, "chains": {"a": [{"index": "i"}]}}, "chains call no model"),
        ({"chains": {"a": [{"index": "i"}]}, "depths": [0]}, "depths"),
    ],
)
def test_what_cannot_be_measured_is_named(run, options, problem):
    with pytest.raises(UserError, match=problem):
        run(**options)


def test_questions_without_supporting_passages_are_refused(run, world, tmp_path):
    (tmp_path / "questions.jsonl").write_text('{"id": "q", "question": "Who?", "answers": ["Mira"]}\n')
    with pytest.raises(UserError, match="no question names its supporting passages"):
        run(path=str(tmp_path / "questions.jsonl"), chains=chains(world))


@pytest.mark.parametrize(
    "named",
    [
        lambda question, titles: {"supporting_ids": []},
        lambda question, titles: {
            "supporting_ids": [],
            "supporting_facts": [fact.replace(" ", "  ") for fact in question["supporting_facts"]],
        },
        lambda question, titles: {"supporting_ids": [titles[id] for id in question["supporting_ids"]]},
    ],
    ids=["facts alone", "facts with other white space", "titles"],
)
def test_facts_and_titles_say_which_passages_are_needed_as_in_an_evaluation(run, world, tmp_path, named):
    """A passage is needed that holds a fact, and a fact that none holds was not found."""
    questions = [json.loads(line) for line in Path(world["path"]).read_text().splitlines()]
    corpus = map(json.loads, Path(world["path"]).with_name("corpus.jsonl").read_text().splitlines())
    titles = {passage["id"]: passage["title"] for passage in corpus}
    by_ids = run(chains={"bm25": {"index": world["index"]}}, depths=[3])
    of_ids = json.loads((by_ids / "retrieval.json").read_text())["chains"]["bm25"]["measures"]["recall@3"]
    path = tmp_path / "named.jsonl"
    path.write_text("".join(json.dumps(each | named(each, titles)) + "\n" for each in questions))
    folder = run(
        path=str(path), chains={"bm25": {"index": world["index"]}}, depths=[3], output_dir=str(tmp_path / "named")
    )
    of_names = json.loads((folder / "retrieval.json").read_text())["chains"]["bm25"]["measures"]["recall@3"]
    assert of_names["mean"] == of_ids["mean"] > 0
