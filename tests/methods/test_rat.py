"""RAT: a draft whose steps are revised in sequence."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.rat import rat
from notewriter.testing import ScriptedRollout


def scripted(draft):
    """Queries and revisions are numbered; a revision quotes the thoughts it revised."""

    def reply(stage, told):
        if stage == "draft":
            return draft
        number = rollout.stages.count(stage)
        return f"query {number}" if stage == "query" else f"<{told['thoughts']}>" if stage == "revise" else "Mira"

    rollout = ScriptedRollout("rat", reply)
    return rollout


def test_each_step_joins_the_revised_ones_and_all_are_revised_together():
    rollout = scripted("One.\n\nTwo.\n \nThree.")
    assert asyncio.run(rat("Who?", rollout, top_k=1)) == "Mira"
    thoughts = ["One.", "<One.>\n\nTwo.", "<<One.>\n\nTwo.>\n\nThree."]
    assert [told["thoughts"] for told in rollout.variables("query")] == thoughts
    assert rollout.variables("revise") == [
        {"question": "Who?", "passages": [f"query {number}.0"], "thoughts": text}
        for number, text in enumerate(thoughts, start=1)
    ]
    assert rollout.searches == [("query 1", 1), ("query 2", 1), ("query 3", 1)]
    revised = f"<{thoughts[-1]}>"
    assert rollout.variables("answer") == [{"question": "Who?", "thoughts": revised, "answer_style": "short"}]
    assert rollout.trace.note == revised
    assert rollout.stages == ["draft", *["query", "revise"] * 3, "answer"]
    assert rollout.roles == {"draft": "policy", "query": "query", "revise": "policy", "answer": "answer"}


@pytest.mark.parametrize(
    ("draft", "first"),
    [
        ("One.\n\nTwo.\n\nThree.\n\nFour.", ["One.", "Two.\n\nThree.\n\nFour."]),
        ("One.\nTwo.", ["One.", "Two."]),
        ("One.\nstill one.\n\nTwo.", ["One.\nstill one.", "Two."]),
        ("One.", ["One."]),
        ("", []),
    ],
)
def test_a_draft_is_split_into_steps_and_nothing_of_it_is_lost(draft, first):
    rollout = scripted(draft)
    asyncio.run(rat("Who?", rollout, max_step=2))
    steps = [told["thoughts"].rpartition(">\n\n")[2] for told in rollout.variables("query")]
    assert steps == first


def test_an_empty_revision_leaves_the_thoughts_as_they_were():
    rollout = ScriptedRollout("rat", ["One.\n\nTwo.", "q", "", "q", "", "Mira"])
    asyncio.run(rat("Who?", rollout))
    assert rollout.variables("answer")[0]["thoughts"] == "One.\n\nTwo."


@settings(max_examples=25)
@given(st.data(), st.integers(1, 4))
def test_whatever_the_model_says_steps_are_bounded(data, max_step):
    rollout = ScriptedRollout("rat", lambda stage, told: data.draw(SCRIPTED_TEXTS))
    asyncio.run(rat("Who?", rollout, max_step=max_step))
    assert len(rollout.searches) <= max_step
    assert rollout.stages == ["draft", *["query", "revise"] * len(rollout.searches), "answer"]
