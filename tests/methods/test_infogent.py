"""Infogent: who sees what, what is kept, and when the navigator stops."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.infogent import infogent
from notewriter.testing import ScriptedRollout

FINISH = "Thought: Done.\nAction: finish[done]"


def decide(*actions: str, feedback: str = "Find Osk.") -> str:
    return json.dumps({"thoughts": "So.", "actions": list(actions), "feedback": feedback})


def run(*replies: str, **options) -> tuple[str, ScriptedRollout]:
    rollout = ScriptedRollout("infogent", replies)
    return asyncio.run(infogent("Who?", rollout, **options)), rollout


def observations(rollout: ScriptedRollout) -> list[str]:
    turns = [call[2]["turns"] for call in rollout.calls if "turns" in call[2]][-1]
    return [turn["content"].removeprefix("Observation: ") for turn in turns if turn["role"] == "user"]


def test_the_navigator_searches_opens_a_page_and_sees_the_feedback_alone():
    answer, rollout = run(
        "Thought: The builder.\nAction: search[bridge]",
        "Thought: The second looks right.\nAction: extract[2]",
        "Mira built it.\n\nIn 1871.\n\nA third.",
        decide("ADD(P1)", "ADD(P2)"),
        FINISH,
        "Mira",
    )
    assert answer == "Mira" and rollout.searches == [("bridge", 3)]
    assert rollout.stages == ["navigate", "select", "extract", "aggregate", "navigate", "answer"]
    assert rollout.roles == {
        **{"navigate": "query", "select": "query", "extract": "notes", "aggregate": "judge", "answer": "answer"}
    }
    assert observations(rollout) == [
        "(1) title bridge.0: bridge.0\n(2) title bridge.1: bridge.1\n(3) title bridge.2: bridge.2",
        "Find Osk. Paragraphs kept so far: 2",
    ]
    # The thought of the search goes with the page, as in the authors' code.
    assert rollout.variables("extract") == [{"question": "Who?", "passages": ["bridge.1"], "thought": "The builder."}]
    (told,) = rollout.variables("aggregate")
    assert told["paragraphs"] == ["Mira built it.", "In 1871."] and told["thought"] == "The builder."
    assert rollout.variables("answer")[0]["kept"] == ["Mira built it.", "In 1871."]
    assert rollout.trace.note == "Mira built it.\n\nIn 1871."
    assert rollout.trace.counts == {"steps": 3, "opened": 1}


def test_the_aggregator_adds_replaces_and_drops_and_sees_what_it_said_before():
    opened = ["search[a]", "extract[1]"]
    _, rollout = run(
        *(*opened, "Old.\n\nOther.", decide("ADD(P1)", feedback="First.")),
        *(*opened, "New.\n\nBad.", decide("REPLACE(E1, P1)", feedback="Second.")),
        *(*opened, "Third.", decide(feedback="")),
        *(FINISH, "Mira"),
    )
    one, two, three = rollout.variables("aggregate")
    assert (one["kept"], two["kept"], three["kept"]) == ([], ["Old."], ["New."])
    assert (two["feedback"], three["feedback"]) == (["First."], ["First.", "Second."])
    assert rollout.trace.note == "New." and observations(rollout)[-1] == "Go on. Paragraphs kept so far: 1"


def test_what_cannot_be_read_or_done_is_counted():
    answer, rollout = run(
        *("I think.", "extract[1]", "search[a]", "extract[9]", "extract[TITLE A.1]"),
        *("Mira.", decide("ADD(P2)", "REPLACE(E1, P1)", "DROP(P1)", "ADD(P1)")),
        *("extract[1]", "Osk.", "no JSON", "extract[1]", "Nothing.", FINISH, "Mira"),
    )
    assert answer == "Mira" and rollout.trace.note == "Mira."
    assert rollout.trace.counts == {"steps": 8, "opened": 3, "invalid_actions": 6, "unreadable_aggregations": 1}
    assert observations(rollout)[1] == observations(rollout)[3] == "No search has found this page."


@pytest.mark.parametrize("name", ["1", "(1)", "(1) title a.0", "1: title a.0", "title a.0"])
def test_a_page_is_named_as_the_list_shows_it(name):
    _, rollout = run("search[a]", f"extract[{name}]", "nothing", FINISH, "Mira")
    assert rollout.trace.counts == {"steps": 3, "opened": 1}


def test_passages_of_one_title_are_one_page():
    rollout = ScriptedRollout("infogent", ["search[a]", "search[b]", "extract[1]", "nothing", FINISH, "Mira"])

    async def retrieve(query, top_k):
        found = await ScriptedRollout.retrieve(rollout, query, 2)
        return [type(found[0])(passage.id, "Page", passage.text) for passage in found]

    rollout.retrieve = retrieve
    asyncio.run(infogent("Who?", rollout))
    assert rollout.variables("extract")[0]["passages"] == ["a.0", "a.1", "b.0", "b.1"]
    assert observations(rollout)[0] == "(1) Page: a.0"


@pytest.mark.parametrize("max_step", [1, 3])
def test_the_navigator_takes_twice_as_many_steps_as_the_aggregator_is_told_of(max_step):
    def reply(stage, told):
        return {"navigate": "search[a]", "select": "extract[1]", "extract": "x", "answer": "Mira"}.get(stage, decide())

    rollout = ScriptedRollout("infogent", reply)
    assert asyncio.run(infogent("Who?", rollout, max_step=max_step)) == "Mira"
    assert rollout.trace.counts == {"steps": 2 * max_step, "opened": max_step, "unfinished": 1}
    assert {told["max_step"] for told in rollout.variables("aggregate")} == {max_step}


@settings(max_examples=60)
@given(st.data(), st.integers(1, 4))
def test_whatever_the_model_says_steps_and_searches_are_bounded(data, max_step):
    actions = ["search[a]", "extract[1]", "extract[title a.0]", "finish[done]", decide("ADD(P1)", "REPLACE(E1, P1)")]
    rollout = ScriptedRollout("infogent", lambda stage, told: data.draw(SCRIPTED_TEXTS | st.sampled_from(actions)))
    answer = asyncio.run(infogent("Who?", rollout, max_step=max_step))
    assert isinstance(answer, str) and rollout.stages[-1] == "answer"
    assert 1 <= rollout.trace.counts["steps"] <= 2 * max_step
    assert len(rollout.searches) + len(rollout.variables("extract")) <= 2 * max_step
