"""Controls in the place of a model: what they read and say at the stages of methods, and what is recorded."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import run_config, tiny_world, write_config

from notewriter.artifacts.pairs import read_pairs
from notewriter.artifacts.predictions import read_predictions
from notewriter.artifacts.traces import ControlReply, Trace, read_traces
from notewriter.data import build_pairs
from notewriter.evaluation import evaluate, judge
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.methods import METHODS
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.controls import CONTROLS, Control, Replay
from notewriter.rollouts.identity import contents
from notewriter.rollouts.method import Stage
from notewriter.rollouts.resources import settings_of
from notewriter.testing import ScriptedRollout

LEAD = Control(CONTROLS["lead"].write)


def played(method, reply, control=LEAD, **options):
    """The finished rollout of a method whose notes a control writes; a passage is its name, `QUERY.PLACE`."""
    rollout = ScriptedRollout(method, reply, controls={"notes": control})
    asyncio.run(METHODS[method].run("Who?", rollout, top_k=2, **options))
    return rollout


def test_a_note_is_written_from_the_passages_at_hand_and_an_update_from_all_that_were_read():
    def reply(stage, told):
        return {"refine_query": "next", "decide": '{"status": "True"}'}.get(stage, "Mira")

    rollout = played("deepnote", reply, max_step=1, max_failure=1)
    assert rollout.stages == ["refine_query", "decide", "answer"]
    (told,) = rollout.variables("decide")
    assert told["best_note"] == "Who?.0 Who?.1"
    assert told["new_note"] == "Who?.0 Who?.1 next Who?.0 next Who?.1"
    assert rollout.trace.note == told["new_note"]


def test_both_memories_of_resp_are_written_from_the_passages_of_their_round():
    plans = iter(("next",))
    rollout = played("resp", lambda stage, told: next(plans) if stage == "plan" else "No", max_step=2)
    assert rollout.stages == ["judge", "plan", "judge", "answer"]
    assert rollout.trace.note == "Who?.0 Who?.1\nnext.0 next.1\nnext next.0 next.1"


def test_a_note_taker_of_documents_replies_in_its_form_and_an_empty_note_is_none():
    steps = ["Action: search[Osk; where?]", "Action: finish[Mira]"]
    (observation,) = played("renact", list(steps)).variables("step")[-1]["turns"][1:]
    lines = ["(Result 1) title Osk where?.0 - Osk where?.0", "(Result 2) title Osk where?.1 - Osk where?.1"]
    assert observation["content"].endswith("\n".join(lines))
    rollout = played("renact", list(steps), Control(CONTROLS["empty"].write))
    assert "No relevant information" in rollout.variables("step")[-1]["turns"][-1]["content"]
    assert [step.text for step in rollout.trace.steps if isinstance(step, ControlReply)] == ["NO#", "NO#"]


def test_the_question_is_that_of_the_prompt_and_its_annotation_the_benchmarks():
    asked = []

    def write(question, passages, words):
        asked.append((question.question, question.answers, words))
        return "note"

    played("renact", ["Action: search[Osk; where?]", "Action: finish[Mira]"], Control(write, 7))
    assert asked == [("where?", ("Mira",), 7)] * 2


def test_words_of_a_run_are_those_of_its_replies_to_the_question_at_the_stage_one_by_one():
    stage, document = Stage("m/note", "notes", "note"), Stage("m/document", "notes", "document note")
    words = {
        ("q", "m/note"): ["one two", "<think>so many</think>one"],
        ("q", "m/document"): ["YES#one two three", "NO#-"],
        ("p", "m/note"): ["one two three four five"],
    }
    control = Control(lambda question, passages, words: "x " * words, words)
    rollout = ScriptedRollout("direct", [])

    def lengths(stage, question):
        return [control.reply(stage, question, [], number).count("x") for number in range(3)]

    assert lengths(stage, rollout.question) == [2, 1, 1]
    assert lengths(document, rollout.question) == [3, 0, 0]
    other = replace(rollout.question, id="other")
    # The mean of 2, 1 and 5.
    assert lengths(stage, other) == [3, 3, 3]
    with pytest.raises(UserError, match=r"words: the run has no m/else; name a run of the same method"):
        control.reply(Stage("m/else", "notes"), other, [], 0)


def test_replies_of_a_run_are_given_again_one_by_one_and_the_last_one_beyond_them():
    stage = Stage("m/note", "notes", "note")
    replay = Replay(CONTROLS["empty"].write, {("q", "m/note"): ["one two", "<think>so many</think> one"]})
    question = ScriptedRollout("direct", []).question
    assert [replay.reply(stage, question, [], number) for number in range(3)] == ["one two", "one", "one"]
    with pytest.raises(RequestRefused, match="no m/note for this question"):
        replay.reply(stage, replace(question, id="other"), [], 0)
    with pytest.raises(UserError, match=r"words: the run has no m/else; name a run of the same method"):
        replay.reply(Stage("m/else", "notes"), question, [], 0)


def test_a_stage_without_passages_and_one_that_samples_need_a_model(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/note.jinja").write_text("Write.")
    rollout = ScriptedRollout("m", [], controls={"notes": LEAD})
    rollout.resources.prompts.__init__(tmp_path)
    with pytest.raises(UserError, match="m/note has no passages for a control"):
        asyncio.run(rollout.generate(Stage("m/note", "notes")))
    with pytest.raises(UserError, match="models: notes: m/note needs a model that samples"):
        asyncio.run(rollout.draw(Stage("m/note", "notes"), [], rollout.sampling(Stage("m/note"))))


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"notes": {"control": "leed"}}, r"unknown control in models: notes 'leed'; choose one of: .*lead"),
        ({"notes": {"control": 3}}, "models: notes: control must be str, not 3"),
        ({"notes": {"control": "lead", "words": -1}}, "models: notes: words: -1"),
        ({"notes": {"control": "lead", "word": 1}}, "models: notes: unknown key 'word'; a control has: control, words"),
        ({"notes": {"control": "lead", "words": "runs/none"}}, "runs/none: no such folder"),
        ({"notes": {"control": "replay", "words": "runs/none"}}, "runs/none: no such folder"),
        ({"notes": {"control": "replay", "words": 9}}, "replay reads the notes of a finished run; give its folder"),
        ({"notes": {"control": "lead", "encoder": "a/b"}}, "only the control similar has one"),
        ({"answer": {"control": "lead"}}, "models: answer: a control writes notes and nothing else"),
    ],
)
def test_a_control_that_is_none_is_refused_before_anything_starts(models, message):
    with pytest.raises(UserError, match=message):
        settings_of(ModelArguments(base_url="http://localhost:1/v1", model="m", models=models))


def test_the_encoder_and_the_run_whose_words_a_control_has_are_part_of_what_makes_a_run_the_same(tmp_path):
    (tmp_path / "traces.jsonl").write_text("")
    before = contents({"models": {"notes": {"control": "lead", "words": str(tmp_path)}}})
    jsonl.write(tmp_path / "traces.jsonl", [Trace("q", "direct").to_dict()])
    after = contents({"models": {"notes": {"control": "lead", "words": str(tmp_path)}}})
    assert list(before) == list(after) == [f"words: {tmp_path}"]
    assert before != after


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), 4)


@pytest.fixture(scope="module")
def endpoint():
    with fake_endpoint(lambda request: "Mira Tolen lived at the river") as running:
        yield running


def test_an_evaluation_has_the_notes_of_a_control_for_no_call(world, endpoint, tmp_path):
    models = {"notes": {"control": "overlap", "words": 9}}
    settings = {"method": "recomp", "method_options": {}, "models": models}
    evaluate.main(run_config(tmp_path, "run", world, endpoint, settings))
    predictions = read_predictions(tmp_path / "run/predictions.jsonl")
    assert {each.scores["note_words"] for each in predictions.values()} == {9.0}
    assert {each.calls for each in predictions.values()} == {1}
    for trace in read_traces(tmp_path / "run/traces.jsonl"):
        (note,) = (step for step in trace.steps if isinstance(step, ControlReply))
        assert (note.stage, note.text) == ("recomp/compress", trace.note)


def test_an_evaluation_of_notes_alone_asks_for_no_answer(world, endpoint, tmp_path):
    once = {"method_options": {"adaptive_retrieval": False}}
    settings = once | {"models": {"answer": {"control": "empty"}}}
    asked = len(endpoint.requests)
    evaluate.main(run_config(tmp_path, "notes", world, endpoint, settings))
    notes = read_predictions(tmp_path / "notes/predictions.jsonl")
    assert {(each.calls, each.prediction, each.error) for each in notes.values()} == {(1, "", "")}
    evaluate.main(run_config(tmp_path, "both", world, endpoint, once))
    both = read_predictions(tmp_path / "both/predictions.jsonl")
    assert {each.calls for each in both.values()} == {2}
    for id, each in notes.items():
        assert each.note == both[id].note
        of_notes = [name for name in each.scores if name.startswith("note_")]
        assert of_notes and all(each.scores[name] == both[id].scores[name] for name in of_notes)
    # Requests are for notes alone, beside what tries the endpoint out.
    prompts = [request["messages"][0]["content"] for request in endpoint.requests[asked:]]
    assert sum("Tolen lived" in prompt for prompt in prompts) == len(both)


def test_notes_without_a_model_that_nobody_answers_from_need_no_server(world, tmp_path):
    models = {"notes": {"control": "lead", "words": 9}, "policy": {"control": "empty"}}
    options = {**world, "output_dir": str(tmp_path / "run"), "cache": str(tmp_path / "cache.sqlite"), "models": models}
    evaluate.main(write_config(tmp_path / "run.yaml", options | {"method_options": {"adaptive_retrieval": False}}))
    predictions = read_predictions(tmp_path / "run/predictions.jsonl")
    assert {(each.calls, each.scores["note_words"]) for each in predictions.values()} == {(0, 9.0)}


def test_a_judgement_needs_a_model_that_plays_the_judge(world, endpoint, tmp_path):
    evaluate.main(run_config(tmp_path, "run", world, endpoint, {"method": "direct", "method_options": {}}))
    options = {"runs": [str(tmp_path / "run")], "models": {"policy": {"control": "empty"}}}
    with pytest.raises(UserError, match="models: judge: a control plays it"):
        judge.main(write_config(tmp_path / "judge.yaml", options | {"cache": str(tmp_path / "cache.sqlite")}))


def test_another_run_has_as_many_words_as_that_run_used(world, endpoint, tmp_path):
    settings = {"method": "recomp", "method_options": {}}
    evaluate.main(run_config(tmp_path, "model", world, endpoint, settings))
    for name in ("lead", "random"):
        models = {"notes": {"control": name, "words": str(tmp_path / "model")}}
        evaluate.main(run_config(tmp_path, name, world, endpoint, settings | {"models": models}))
        predictions = read_predictions(tmp_path / name / "predictions.jsonl")
        assert {each.scores["note_words"] for each in predictions.values()} == {6.0}


def test_a_second_reader_answers_from_the_notes_that_a_run_wrote(world, endpoint, tmp_path):
    settings = {"method": "recomp", "method_options": {}}
    evaluate.main(run_config(tmp_path, "first", world, endpoint, settings))
    models = {"notes": {"control": "replay", "words": str(tmp_path / "first")}}
    with fake_endpoint(lambda request: "Osk") as second:
        evaluate.main(run_config(tmp_path, "second", world, second, settings | {"models": models}))
        read = [request["messages"][0]["content"] for request in second.requests]
    before, after = (read_predictions(tmp_path / name / "predictions.jsonl").values() for name in ("first", "second"))
    assert [each.note for each in after] == [each.note for each in before]
    assert {each.prediction for each in after} == {"Osk"} and {each.calls for each in after} == {1}
    assert all("Mira Tolen lived at the river" in prompt for prompt in read)


def test_of_an_extractive_run_the_sentences_are_read_again_and_counted_and_not_their_marks(world, tmp_path):
    settings = {"method": "recomp", "method_options": {}}
    with fake_endpoint(lambda request: "[C][A]") as naming:
        config = run_config(tmp_path, "first", world, naming, settings | {"extractive_stages": ["recomp/compress"]})
        evaluate.main(config)
        for name in ("replay", "lead"):
            models = {"notes": {"control": name, "words": str(tmp_path / "first")}}
            evaluate.main(run_config(tmp_path, name, world, naming, settings | {"models": models}))
    first, replay, lead = (
        read_predictions(tmp_path / name / "predictions.jsonl").values() for name in ("first", "replay", "lead")
    )
    assert [each.note for each in replay] == [each.note for each in first]
    assert all(each.note and "[" not in each.note for each in first)
    words = [each.scores["note_words"] for each in first]
    assert [each.scores["note_words"] for each in lead] == words and min(words) > 1


def test_pairs_of_the_gold_evidence_and_a_control_need_no_model(world, tmp_path):
    models = {"notes": {"control": "hard_negative"}, "policy": {"control": "empty"}}
    options = {"stages": {"recomp/compress": "reference"}, "gold_stages": ["recomp/compress"], "dev_share": 0.0}
    options |= {**world, "models": models, "output_dir": str(tmp_path / "pairs"), "cache": str(tmp_path / "c.sqlite")}
    build_pairs.main(write_config(tmp_path / "pairs.yaml", options))
    sources = [
        (pair["chosen_source"]["kind"], pair["rejected_source"]["kind"])
        for pair in read_pairs(tmp_path / "pairs/train.parquet")
    ]
    assert sources and set(sources) == {("gold", "control")}


def test_a_control_with_several_candidates_gives_a_prompt_as_many_pairs(world, tmp_path):
    models = {"notes": {"control": "hard_negative", "candidates": 2}, "policy": {"control": "empty"}}
    options = {"stages": {"recomp/compress": "reference"}, "gold_stages": ["recomp/compress"], "dev_share": 0.0}
    options |= {**world, "rejected": "every", "models": models, "output_dir": str(tmp_path / "pairs")}
    build_pairs.main(write_config(tmp_path / "pairs.yaml", options | {"cache": str(tmp_path / "c.sqlite")}))
    pairs = list(read_pairs(tmp_path / "pairs/train.parquet"))
    questions = [pair["question_id"] for pair in pairs]
    assert questions == sorted(questions, key=questions.index) and 2 in Counter(questions).values()
    assert len({(pair["question_id"], pair["rejected"][0]["content"]) for pair in pairs}) == len(pairs)


def test_only_hard_negatives_come_in_several_candidates(world, endpoint, tmp_path):
    models = {"notes": {"control": "lead", "candidates": 2}}
    with pytest.raises(UserError, match="candidates: only the control hard_negative writes several; remove it"):
        evaluate.main(run_config(tmp_path, "several", world, endpoint, {"models": models}))


def test_a_stage_that_is_to_be_trained_needs_a_model_or_gold_evidence(world, endpoint, tmp_path):
    changes = {"stages": {"recomp/compress": ["reference"]}, "models": {"notes": {"control": "lead"}}}
    config = run_config(tmp_path, "pairs", world, endpoint, changes)
    with pytest.raises(
        UserError, match="models: notes: a control writes one text, so that recomp/compress has no second"
    ):
        build_pairs.main(config)
