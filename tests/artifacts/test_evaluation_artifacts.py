"""Traces, predictions, metrics, costs and judgements: what is written is read again, and nothing else is."""

import json

import pytest

from notewriter.artifacts.costs import Costs, StageCosts, read_costs, write_costs
from notewriter.artifacts.judgements import Judgement, read_judgements
from notewriter.artifacts.metrics import Interval, Metrics, read_metrics, write_metrics
from notewriter.artifacts.predictions import Prediction, read_predictions, write_predictions
from notewriter.artifacts.traces import Generation, GoldReply, Retrieval, Trace, read_traces
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Sampling

MESSAGES = [{"role": "user", "content": "Who?"}]
TRACE = Trace(
    question_id="q",
    method="flare",
    steps=[
        Retrieval("who", 2, [{"id": "a", "title": "A"}], 0.1, 60, [0, 2]),
        Generation(
            *("flare/step", "policy", MESSAGES, Sampling(stop=("\n",), logprobs=True)),
            Completion("Ana", "stop", 100, 2, 40, 0.5, [("An", -0.1), ("a", -0.2)]),
        ),
        GoldReply("flare/answer", "answer", MESSAGES, "Ana"),
    ],
    note="",
    answer="Ana",
    counts={"invalid_actions": 1},
    retrieves=True,
)
PREDICTION = Prediction(
    **{"question_id": "a", "question": "Who?", "answers": ["Ana"], "prediction": "Bo", "note": "", "error": ""},
    **{"scores": {"f1": 0.5}, "calls": 1, "retrievals": 2, "prompt_tokens": 3, "completion_tokens": 4},
    **{"words_retrieved": 5, "words_answered_from": 6, "gold_documents": 7, "counts": {}, "metadata": {"hops": [2]}},
)
METRICS = Metrics(
    **{"name": "run", "dataset": "nq", "method": "direct", "model": "m", "family": "nq", "questions": 1, "errors": 0},
    metrics={"em": Interval(0.5, 0.25, 1.0)},
    per_question={"calls": 1.0, "retrievals": 0.0, "prompt_tokens": 2.5, "completion_tokens": 3.0},
    config_hash="0",
    version="0.2.0",
)
COSTS = Costs(stages={"m/answer (answer)": StageCosts(1, 2, 3, 4, 0.5)}, money=0.25, counts={}, compression=None)
JUDGEMENT = Judgement(
    **{"question_id": "a", "prediction": "Bo", "model": "m", "scores": {"judged_accuracy": 1.0}, "reason": ""},
    **{"counts": {}, "replies": ["yes"], "prompt_tokens": 1, "completion_tokens": 2, "seconds": 0.5},
)


def test_what_is_written_is_read_again(tmp_path):
    jsonl.write(tmp_path / "traces.jsonl", [TRACE.to_dict()])
    assert list(read_traces(tmp_path / "traces.jsonl")) == [TRACE]
    write_predictions(tmp_path / "predictions.jsonl", [PREDICTION])
    assert read_predictions(tmp_path / "predictions.jsonl") == {"a": PREDICTION}
    write_metrics(tmp_path / "metrics.json", METRICS)
    assert read_metrics(tmp_path / "metrics.json") == METRICS
    write_costs(tmp_path / "costs.json", COSTS)
    assert read_costs(tmp_path / "costs.json") == COSTS
    jsonl.write(tmp_path / "answer.jsonl", [JUDGEMENT.to_dict()])
    assert read_judgements(tmp_path / "answer.jsonl") == {"a": JUDGEMENT}


def test_a_trace_of_an_earlier_version_lacks_what_was_not_recorded():
    record = TRACE.to_dict()
    del record["retrieves"], record["steps"][0]["words"], record["steps"][0]["facts"]
    del record["steps"][1]["sampling"]["logprobs"], record["steps"][1]["completion"]["tokens"]
    trace = Trace.from_dict(record | {"key of a later version": 1})
    assert trace.retrieves is None
    assert (trace.retrievals[0].words, trace.retrievals[0].facts) == (0, None)
    assert trace.generations[0].completion.tokens is None
    assert trace.generations[0].sampling.stop == ("\n",)


@pytest.mark.parametrize("key", ["question_id", "method", "steps", "note", "answer", "counts", "error"])
def test_a_trace_without_a_key_is_refused(key):
    record = TRACE.to_dict()
    del record[key]
    with pytest.raises(UserError, match=f"traces.jsonl:3 has no '{key}'; run the evaluation again"):
        Trace.from_dict(record, "traces.jsonl:3")


def test_a_folder_or_file_that_is_missing_is_named_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"nowhere: no such folder; give the folder of a run"):
        read_metrics(tmp_path / "nowhere/metrics.json")
    for read in (read_metrics, read_predictions, lambda path: next(read_traces(path))):
        with pytest.raises(UserError, match=r"file\.json: no such file; run `notewriter evaluate` again"):
            read(tmp_path / "file.json")
    assert read_costs(tmp_path / "costs.json") is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schema", "notewriter/prediction/9", ": has the schema 'notewriter/prediction/9'"),
        ("scores", None, r": scores must be dict\[str, float\], not None; run the evaluation again"),
        ("scores", {"f1": "high"}, ": scores: f1 must be float, not 'high'"),
        ("scores", {"f1": float("nan")}, ": scores: f1 must be float, not nan"),
        ("calls", 1.5, ": calls must be int, not 1.5"),
        ("question_id", "a", ": duplicate question 'a'"),
    ],
)
def test_a_malformed_prediction_is_named_by_its_line(tmp_path, key, value, message):
    second = PREDICTION.to_dict() | {"question_id": "b"} | {key: value}
    jsonl.write(tmp_path / "predictions.jsonl", [PREDICTION.to_dict(), second])
    with pytest.raises(UserError, match=rf"predictions\.jsonl:2{message}"):
        read_predictions(tmp_path / "predictions.jsonl")


def test_an_earlier_prediction_needs_neither_metadata_nor_gold_documents(tmp_path):
    record = PREDICTION.to_dict()
    del record["metadata"], record["gold_documents"]
    jsonl.write(tmp_path / "predictions.jsonl", [record])
    (prediction,) = read_predictions(tmp_path / "predictions.jsonl").values()
    assert (prediction.metadata, prediction.gold_documents) == ({}, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": {"f1": {"mean": 0.5}}}, "metrics: f1 has no 'low'"),
        ({"metrics": {"f1": {"mean": 0.5, "low": 0, "high": "1"}}}, "metrics: f1: high must be float, not '1'"),
        ({"per_question": {}}, "per_question has no 'calls'"),
        ({"name": 7}, "name must be str, not 7"),
    ],
)
def test_malformed_metrics_are_refused(tmp_path, change, message):
    (tmp_path / "metrics.json").write_text(json.dumps(METRICS.to_dict() | change))
    with pytest.raises(UserError, match=rf"metrics\.json: {message}; run the evaluation again"):
        read_metrics(tmp_path / "metrics.json")


def test_a_file_that_is_not_json_is_named_by_its_line(tmp_path):
    (tmp_path / "metrics.json").write_text("{\n!")
    with pytest.raises(UserError, match=r"metrics\.json: is not JSON .*line 2"):
        read_metrics(tmp_path / "metrics.json")
