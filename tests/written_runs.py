"""Writes run folders of evaluations, for what reads them."""

import json

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import run_config, tiny_world

from notewriter.artifacts.metrics import METRICS_SCHEMA
from notewriter.artifacts.predictions import PREDICTION_SCHEMA
from notewriter.artifacts.traces import Generation, Retrieval, Trace
from notewriter.evaluation import evaluate
from notewriter.ground import jsonl
from notewriter.ground.records import Completion, Sampling


@pytest.fixture
def write_run():
    """Writes a run folder with one prediction and one trace for each id -> f1 (None: not scored)."""
    return _write_run


def _write_run(folder, scores, *, name="", family="musique", question="Who?", prediction="Fulda", error="", **costs):
    folder.mkdir()
    costs = {"calls": 3, "retrievals": 2, "prompt_tokens": 1500, "completion_tokens": 80} | costs
    jsonl.write(
        folder / "predictions.jsonl",
        (
            {
                "schema": PREDICTION_SCHEMA,
                "question_id": identifier,
                "question": question,
                "answers": ["Fulda"],
                "prediction": prediction,
                "note": "",
                "error": error,
                "scores": {} if f1 is None else {"f1": f1},
                "metadata": {},
                "counts": {},
                "words_retrieved": 300,
                "words_answered_from": 100,
                **costs,
            }
            for identifier, f1 in scores.items()
        ),
    )
    jsonl.write(folder / "traces.jsonl", (_trace(identifier, question, prediction, error) for identifier in scores))
    (folder / "config.yaml").write_text("top_k: 5\n")
    metrics = {
        "schema": METRICS_SCHEMA,
        "name": name or folder.name,
        "dataset": "musique",
        "method": "deepnote",
        "model": "small",
        "family": family,
        "questions": len(scores),
        "errors": 0,
        "metrics": {"f1": {"mean": 0.5, "low": 0.4, "high": 0.6}},
        "per_question": costs,
        "config_hash": "0",
        "version": "0",
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def _trace(identifier, question, prediction, error):
    completion = Completion(prediction, "stop", 400, 3, 0, 0.5)
    messages = [{"role": "user", "content": question}]
    steps = [
        Retrieval(question, 5, [{"id": "1", "title": "Fulda"}], 0.01),
        Generation("deepnote/answer", "answer", messages, Sampling(), completion),
    ]
    return Trace(identifier, "deepnote", steps, answer=prediction, error=error).to_dict()


@pytest.fixture(scope="session")
def noted_runs(tmp_path_factory):
    """A folder with two runs, `before` with notes of a word and `after` with notes of twelve words, and their world."""
    folder = tmp_path_factory.mktemp("runs")
    world = tiny_world(folder / "world")

    def noting(note):
        return lambda request: "nobody" if request["messages"][0]["content"].startswith("Answer") else note

    for name, note in (("before", "nothing"), ("after", "words " * 12)):
        with fake_endpoint(noting(note)) as endpoint:
            settings = {"method_options": {"adaptive_retrieval": False, "top_k": 3}}
            evaluate.main(run_config(folder, name, world, endpoint, settings))
    return folder, world
