"""LangChain's ReAct agent: what its parser reads, what each step sees, and how it stops."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods import prepare
from notewriter.methods.langchain_react import STOPPED, _parse, langchain_react
from notewriter.testing import ScriptedRollout

SEARCH = "I look it up.\nAction: search\nAction Input: {}"


def run(replies, **options) -> tuple[str, ScriptedRollout]:
    rollout = ScriptedRollout("langchain_react", replies)
    return asyncio.run(langchain_react("Who?", rollout, **options)), rollout


@pytest.mark.parametrize(
    ("reply", "tool", "tool_input"),
    [
        ("On.\nAction: search\nAction Input: old bridge", "search", "old bridge"),
        ('On. Action 1:search Action 1 Input 1: "old bridge"', "search", "old bridge"),
        ("Action: Search\nAction Input: old\nbridge", "Search", "old\nbridge"),
        ('Action: search\nAction Input: it\'s "old" here', "search", 'it\'s "old" here'),
        ("Action: a\nAction: b\nAction Input: c", "a\nAction: b", "c"),
    ],
)
def test_an_action_is_a_tool_and_all_that_follows_as_its_input(reply, tool, tool_input):
    step = _parse(reply)
    assert (step.tool, step.tool_input, step.answer, step.problem) == (tool, tool_input, None, "")


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("I know.\nFinal Answer: Mira", "Mira"),
        ("Final Answer: Osk. Final Answer: Mira\nof Osk\n", "Mira\nof Osk"),
        ("Action: none\nFinal Answer: Mira", "Mira"),
        ("Final Answer:", ""),
    ],
)
def test_the_text_after_the_last_final_answer_is_the_answer(reply, answer):
    assert _parse(reply).answer == answer


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("I know.", "missing 'Action:' after 'Thought:'"),
        ("final answer: Mira", "missing 'Action:' after 'Thought:'"),
        ("Action Input: bridge", "missing 'Action:' after 'Thought:'"),
        ("Action: search[bridge]", "missing 'Action Input:' after 'Action:'"),
        ("Action: search\nAction Input: bridge\nFinal Answer: Mira", "both an action and a final answer"),
    ],
)
def test_what_cannot_be_parsed_is_a_step_whose_observation_names_the_problem(reply, problem):
    answer, rollout = run([reply, "Final Answer: Mira"])
    assert answer == "Mira" and problem in rollout.variables("step")[1]["scratchpad"]
    assert rollout.trace.counts == {"steps": 2, "invalid_actions": 1}
    assert rollout.searches == []


def test_an_unknown_tool_is_named_and_nothing_is_searched():
    _, rollout = run(["Action: Search\nAction Input: bridge", "Final Answer: Mira"])
    assert "There is no tool Search; use one of [search]." in rollout.variables("step")[1]["scratchpad"]
    assert rollout.trace.counts == {"steps": 2, "invalid_actions": 1}


def test_the_steps_are_one_text_that_the_prompt_ends_with():
    answer, rollout = run([SEARCH.format("bridge") + "\nObservation: made up", "Final Answer: Mira"], top_k=2)
    assert answer == "Mira" and rollout.searches == [("bridge", 2)]
    first, second = rollout.variables("step")
    assert first["scratchpad"] == ""
    assert second["scratchpad"] == (
        f" {SEARCH.format('bridge')}\nObservation: title bridge.0: bridge.0\n\ntitle bridge.1: bridge.1\nThought:"
    )
    (message,) = rollout.resources.prompts.render("langchain_react/step", **second)
    assert message["content"].endswith(f"Question: Who?\nThought:{second['scratchpad']}")


@pytest.mark.parametrize("max_step", [1, 4])
def test_at_the_limit_it_stops_with_a_fixed_answer(max_step):
    answer, rollout = run(lambda stage, told: SEARCH.format("x"), max_step=max_step)
    assert answer == STOPPED and rollout.stages == ["step"] * max_step
    assert rollout.trace.counts == {"steps": max_step, "unfinished": 1}


def test_the_limit_is_langchains():
    assert prepare("langchain_react", {}).options["max_step"] == 15


def test_the_case_of_neighbors():
    """DeepNote's case study (appendix, Table 22): ReAct stops at the author, where his birthplace was asked for."""
    question = "What city was the author of Neighbors born in?"
    replies = [SEARCH.format("author of Neighbors"), "It is Carver.\nFinal Answer: Raymond Carver"]
    rollout = ScriptedRollout("langchain_react", replies, lambda query, top_k: ["Raymond Carver wrote Neighbors."])
    assert asyncio.run(langchain_react(question, rollout)) == "Raymond Carver"
    assert rollout.searches == [("author of Neighbors", 5)]


@settings(max_examples=60)
@given(st.data(), st.integers(1, 4))
def test_whatever_the_model_says_steps_and_searches_are_bounded(data, max_step):
    marks = st.lists(st.sampled_from(["Action:", "Action Input:", "Final Answer:", "search", "\n", " ", "1"]))
    replies = SCRIPTED_TEXTS | marks.map("".join)
    answer, rollout = run(lambda stage, told: data.draw(replies), max_step=max_step)
    assert 1 <= len(rollout.variables("step")) == rollout.trace.counts["steps"] <= max_step
    assert len(rollout.searches) <= max_step and isinstance(answer, str)
