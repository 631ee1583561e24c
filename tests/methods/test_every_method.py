"""Every method ends and leaves a complete trace in a plain rollout, whatever the model replies."""

import asyncio
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.artifacts.traces import ControlReply, Retrieval
from notewriter.ground.records import Completion, Passage, Question
from notewriter.methods import METHODS, stage_named
from notewriter.rollouts.controls import CONTROLS, Control
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.rehearsal import Rehearsal
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout


class World:
    """A model that cycles through a few replies, and an index that always finds the same passages."""

    def __init__(self, replies: list[str]) -> None:
        self.replies = replies
        self.asked = 0

    async def complete(self, messages, sampling, **_) -> Completion:
        text = self.replies[self.asked % len(self.replies)]
        self.asked += 1
        for mark in sampling.stop:
            text = text.partition(mark)[0]
        tokens = [(each, -1.0) for each in text] if sampling.logprobs else None
        alternatives = [{name: -1.0 for name in sampling.alternatives if name[0] == each} for each in text]
        return Completion(text, "stop", 1, 1, 0, 0.0, tokens, alternatives if sampling.alternatives else None)

    def search(self, query: str, top_k: int) -> list[Passage]:
        return [Passage(id, f"title {id}", f"text {id}") for id in "abcde"[:top_k]]


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=10)
@given(replies=st.lists(SCRIPTED_TEXTS, min_size=1, max_size=4))
@example(replies=["<think>"])
def test_it_ends_with_an_answer_and_a_trace_of_all_it_did(name, replies):
    world = World(replies)
    rollout = Rollout(Question("q", "Who?", ("Mira",)), name, Resources({"policy": world}, Prompts(), retriever=world))
    answer = asyncio.run(METHODS[name].run("Who?", rollout))
    assert isinstance(answer, str)
    trace = json.loads(json.dumps(rollout.trace.to_dict()))
    searches = sum(isinstance(step, Retrieval) for step in rollout.trace.steps)
    # A reply that was stopped in its thinking is asked for again, in the same step.
    asked_again = rollout.trace.counts.get("stopped_in_thinking", 0)
    assert len(trace["steps"]) == world.asked - asked_again + searches
    assert world.asked < 200
    assert METHODS[name].retrieves or searches == 0


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in METHODS), ("corag", {"decode_strategy": "best_of_n"})]
)
def test_a_stage_whose_replies_are_never_taken_as_texts_says_that_it_is_scored(name, options):
    generated = set()

    class Told(Rollout):
        async def generate(self, stage, **variables):
            generated.add(stage)
            return await super().generate(stage, **variables)

    class Shelf:
        def search(self, query: str, top_k: int) -> list[Passage]:
            return [Passage(id, f"title {id}", f"text {id}") for id in "abcde"[:top_k]]

    resources = Rehearsal({}, Prompts(), Shelf(), count=len, share=0.1, tokens_a_word=1.0)
    rollout = Told(Question("q", "Who?", ("Mira",)), name, resources)
    asyncio.run(METHODS[name].run("Who?", rollout, **options))
    called = {stage_named(step.stage) for step in rollout.trace.generations}
    assert {stage for stage in called if stage.scored} == called - generated


TAKES_NOTES = [name for name in METHODS if any(stage.role == "notes" for stage in METHODS[name].stages)]


@pytest.mark.parametrize("name", TAKES_NOTES)
def test_a_control_writes_every_note_of_a_method_that_takes_notes(name):
    class Shelf:
        def search(self, query: str, top_k: int) -> list[Passage]:
            return [Passage(id, f"title {id}", f"The {id} of the text. More on {id}.") for id in "abcde"[:top_k]]

    lead = Control(CONTROLS["lead"].write, 4)
    resources = Rehearsal({}, Prompts(), Shelf(), count=len, share=0.1, tokens_a_word=1.0, controls={"notes": lead})
    rollout = Rollout(Question("q", "Who?", ("Mira",)), name, resources)
    options = {"notes": True} if "notes" in METHODS[name].options else {}
    asyncio.run(METHODS[name].run("Who?", rollout, **options))
    notes = [step for step in rollout.trace.steps if isinstance(step, ControlReply)]
    assert notes and {step.role for step in notes} == {"notes"}
    assert all(step.role != "notes" for step in rollout.trace.generations)
    for step in notes:
        says = "YES#" if stage_named(step.stage).kind == "document note" else ""
        assert step.text.startswith(says) and len(step.text.split()) == 4
