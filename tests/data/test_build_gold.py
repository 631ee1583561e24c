"""`notewriter gold`: the gold evidence replies over a tiny world, and a fake endpoint plays the rest."""

import json
from collections import Counter

import pyarrow.parquet
import pytest
from fake_endpoint import fake_endpoint, knowing
from tiny_world import run_config, tiny_world

from notewriter.artifacts.chains import GOLD_COLUMNS
from notewriter.data import build_gold, viewer
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.rollouts.extraction import named_in
from notewriter.training.inputs import conversations

QUESTIONS = 6
STAGES = ["deepnote/init_note", "deepnote/refine_query", "deepnote/accumulate_knowledge", "deepnote/decide"]
SETTINGS = {
    "gold_stages": [*STAGES, "deepnote/answer"],
    "method_options": {"deepnote": {"max_step": 1, "max_failure": 1}},
    "dev_share": 0.3,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture(scope="module")
def endpoint(world):
    golds = {record["question"]: record["answers"][0] for _, record in jsonl.read(world["path"])}
    with fake_endpoint(knowing(golds)) as running:
        yield running


@pytest.fixture
def write(world, endpoint, tmp_path):
    """Write conversations into the folder `name`; returns it."""

    def run(name="gold", **changes):
        build_gold.main(run_config(tmp_path, name, world, endpoint, SETTINGS | changes))
        return tmp_path / name

    return run


def rows(folder):
    tables = [pyarrow.parquet.read_table(path) for path in (folder / "train.parquet", folder / "dev.parquet")]
    assert all(table.schema == GOLD_COLUMNS for table in tables)
    return [row for table in tables for row in table.to_pylist()]


def test_each_reply_of_the_gold_evidence_is_a_conversation_that_sft_reads(write, world, capsys):
    folder = write()
    by_id = {record["id"]: record for _, record in jsonl.read(world["path"])}
    found = rows(folder)
    assert {row["stage"] for row in found} >= {"deepnote/init_note", "deepnote/decide", "deepnote/answer"}
    for row in found:
        *prompt, reply = row["messages"]
        assert [message["role"] for message in prompt] == ["user"] and reply["role"] == "assistant"
        question = by_id[row["question_id"]]
        assert question["question"] in prompt[0]["content"]
        if row["stage"] == "deepnote/answer":
            assert reply["content"] in question["answers"] and reply["content"] in prompt[0]["content"]
        if row["stage"] == "deepnote/init_note":
            assert set(reply["content"].split("\n")) <= set(question["supporting_facts"])
            assert all(fact in prompt[0]["content"] for fact in reply["content"].split("\n"))
    read = conversations.read(folder / "train.parquet")
    assert set(read["stage"]) <= set(SETTINGS["gold_stages"]) and set(read["trained_from"]) == {0}
    assert "training and" in capsys.readouterr().out


def test_at_an_extractive_stage_the_reply_names_the_sentences_of_the_evidence(write, world):
    facts = {record["id"]: record["supporting_facts"] for _, record in jsonl.read(world["path"])}
    found = rows(write(gold_stages=["deepnote/init_note"], extractive_stages=["deepnote/init_note"]))
    assert found
    for row in found:
        prompt, reply = (message["content"] for message in row["messages"])
        for line in named_in(reply, prompt).split("\n"):
            assert line.endswith(tuple(facts[row["question_id"]]))


def test_every_prompt_is_a_conversation_or_dropped_for_a_reason_and_the_card_tells_both(write):
    folder = write()
    told = json.loads((folder / "stats.json").read_text())
    assert told["schema"] == "notewriter/gold-stats/1"
    by_stage = {stage: sum(row["stage"] == stage for row in rows(folder)) for stage in SETTINGS["gold_stages"]}
    for stage, count in told["stages"].items():
        assert count["conversations"] == by_stage[stage]
        # One refinement a question.
        assert count["conversations"] + sum(count["dropped"].values()) == QUESTIONS
    card = (folder / "README.md").read_text()
    assert f"| deepnote/init_note | {by_stage['deepnote/init_note']} |" in card


def test_the_model_plays_the_other_stages_and_is_not_asked_where_the_evidence_replies(write, endpoint):
    before = len(endpoint.requests)
    write()
    # An answer that is not trained is not asked for either: nothing comes after it.
    assert len(endpoint.requests) == before
    told = json.loads((write("answers", gold_stages=["deepnote/answer"]) / "stats.json").read_text())
    assert set(told["tokens"]) == set(STAGES)
    assert len(endpoint.requests) > before


def test_where_the_evidence_has_no_reply_the_model_goes_on(write, world, tmp_path):
    unsupported = [record | {"supporting_facts": []} for _, record in jsonl.read(world["path"])]
    path = tmp_path / "questions.jsonl"
    jsonl.write(path, unsupported)
    folder = write(path=str(path), gold_stages=["deepnote/init_note", "deepnote/decide"], dev_share=0.0)
    told = json.loads((folder / "stats.json").read_text())
    assert told["stages"]["deepnote/init_note"] == {
        "conversations": 0,
        "dropped": {"the gold evidence has no reply": QUESTIONS},
    }
    assert told["stages"]["deepnote/decide"]["conversations"] == QUESTIONS
    assert told["tokens"]["deepnote/init_note"]["notes"]["calls"] == QUESTIONS


def test_a_stage_with_two_kinds_of_replies_is_balanced(write):
    settings = {"gold_stages": ["ircot/note"], "method_options": {"ircot": {"notes": True, "max_step": 1}}}

    def kinds(folder):
        return Counter(row["messages"][-1]["content"].partition("#")[0] for row in rows(folder))

    everything = kinds(write("everything", **settings))
    folder = write("balanced", balanced_stages=["ircot/note"], **settings)
    least = min(everything["YES"], everything["NO"])
    assert 0 < least < max(everything.values()) and kinds(folder) == {"YES": least, "NO": least}
    told = json.loads((folder / "stats.json").read_text())["stages"]["ircot/note"]
    assert told["dropped"] == {"replies of the other kind are rarer": everything.total() - 2 * least}


def test_conversations_can_be_browsed(write, tmp_path):
    viewer.main(["--chains", str(write()), "--output", str(tmp_path / "page.html")])
    assert "deepnote/init_note" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gold_stages": []}, "gold_stages: is empty"),
        ({"gold_stages": ["rearag/step"]}, "unknown stage with gold evidence 'rearag/step'"),
        ({"gold_stages": ["replug/answer"]}, "gold_stages: replug/answer: is read through its log-probabilities"),
        ({"method_options": {"resp": {}}}, "'resp' is not the method of any stage"),
        ({"top_k_range": [4, 3]}, "top_k_range"),
        ({"extractive_stages": ["deepnote/answer"]}, "unknown extractive stage 'deepnote/answer'"),
        ({"balanced_stages": ["deepnote/answer"]}, "unknown gold stage with two kinds of replies 'deepnote/answer'"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(write, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        write(**changes)
    assert not (tmp_path / "gold").exists()
