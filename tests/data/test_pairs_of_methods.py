"""Pairs for NotesWriting's note-taker and for ReSP's modules, through the command, by naming the stages."""

import json
import re

import pyarrow.parquet
import pytest
from fake_endpoint import fake_endpoint
from tiny_world import tiny_world, write_config

from notewriter.data import build_pairs
from notewriter.ground import jsonl
from notewriter.rollouts.parsing import parse_note


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), 4)


@pytest.fixture(scope="module")
def endpoint():
    """Searches for the question once and finishes; the hotter, the less care in notes; never finds a summary enough."""

    def reply(request):
        prompt, last = (request["messages"][place]["content"] for place in (0, -1))
        heat = request["temperature"]
        if "Thought:" in prompt:
            question = prompt.rpartition("Question: ")[2]
            return "Action: finish[Tolen]" if last.startswith("Observation") else f"Action: search[{question}]"
        if "YES#" in prompt:
            return f"YES#{' '.join(prompt.split()[20:60])}" if heat < 0.5 else "There are words."
        if prompt.startswith("Judge"):
            return "No"
        if prompt.startswith(("Gather", "Find out")):
            return re.search(r"\[1\] (.*)", prompt)[1] if heat < 0.5 else "Nothing."
        return f"What lies at {heat} of the river?"

    with fake_endpoint(reply) as running:
        yield running


def build(world, endpoint, tmp_path, **changes):
    options = {
        **world,
        "output_dir": str(tmp_path / "pairs"),
        "cache": str(tmp_path / "cache.sqlite"),
        "temperatures": [0.1, 0.9],
        "top_ps": [0.9],
        "top_k_range": [2, 2],
        "dev_share": 0.0,
        "base_url": endpoint.base_url,
        "model": endpoint.model,
    }
    build_pairs.main(write_config(tmp_path / "config.yaml", options | changes))
    return pyarrow.parquet.read_table(tmp_path / "pairs" / "train.parquet").to_pylist()


# Whatever is noted, the answer is the same here, so that the outcome leaves the decision to the reference.
@pytest.mark.parametrize("judges", ["reference", ["outcome", "reference"]])
def test_a_note_takers_pairs_are_replies_to_single_documents(world, endpoint, tmp_path, judges):
    rows = build(world, endpoint, tmp_path, stages={"renact/note": judges}, gold_stages=["renact/note"])
    stats = json.loads((tmp_path / "pairs" / "stats.json").read_text())
    # One search of two documents a question.
    assert stats["stages"]["renact/note"]["pairs"] == len(rows) == 4 * 2
    for row in rows:
        chosen, rejected = (row[side][0]["content"] for side in ("chosen", "rejected"))
        assert parse_note(chosen) is not None and chosen != rejected
        assert row["chosen_score"] == 1 and row["chosen_source"]["kind"] == "gold"
        (prompt,) = row["prompt"]
        assert "[1] " in prompt["content"] and "[2] " not in prompt["content"]
    assert {"YES", "NO"} == {row["chosen"][0]["content"].partition("#")[0] for row in rows}


def test_the_method_continues_with_the_better_note(world, endpoint, tmp_path):
    rows = build(world, endpoint, tmp_path, stages={"renact/note": "reference"}, gold_stages=["renact/note"])
    notes = {
        trace["question_id"]: trace["note"]
        for _, record in jsonl.read(tmp_path / "pairs" / "rollouts.jsonl")
        for trace in record["traces"]
    }
    for row in rows:
        assert (parse_note(row["chosen"][0]["content"]) or "") in notes[row["question_id"]]


def test_resps_modules_give_pairs_each(world, endpoint, tmp_path):
    stages = {"resp/global_evidence": "reference", "resp/local_pathway": "outcome", "resp/plan": "retrieval"}
    rows = build(world, endpoint, tmp_path, stages=stages, method_options={"resp": {"max_step": 2}})
    assert {row["stage"] for row in rows} <= set(stages) and "resp/global_evidence" in {row["stage"] for row in rows}
    traces = [trace for _, record in jsonl.read(tmp_path / "pairs" / "rollouts.jsonl") for trace in record["traces"]]
    assert all(trace["counts"] == {"unfinished": 1} and trace["note"] for trace in traces)
    told = json.loads((tmp_path / "pairs" / "stats.json").read_text())["stages"]
    reached = {stage: yielded["pairs"] + sum(yielded["dropped"].values()) for stage, yielded in told.items()}
    assert reached == {"resp/global_evidence": 8, "resp/local_pathway": 4, "resp/plan": 4}
