"""Iter-RetGen: each response is part of the query for the next one's passages."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.iter_retgen import iter_retgen
from notewriter.testing import ScriptedRollout


def test_the_last_response_goes_into_the_next_query_and_nowhere_else():
    rollout = ScriptedRollout("iter_retgen", ["The bridge is Osk's.\nAnswer: Osk", "Mira owns it.\nAnswer: Mira"])
    assert asyncio.run(iter_retgen("Who?", rollout, top_k=1)) == "Mira"
    queries = ["Who?", "The bridge is Osk's.\nAnswer: Osk Who?"]
    assert rollout.searches == [(query, 1) for query in queries]
    assert rollout.variables("reason") == [
        {"question": "Who?", "passages": [f"{query}.0"], "answer_style": "short"} for query in queries
    ]
    assert rollout.roles == {"reason": "answer"}


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_it_takes_as_many_rounds_as_it_is_told(iterations):
    rollout = ScriptedRollout("iter_retgen", lambda stage, told: f"Answer: {len(rollout.calls)}")
    assert asyncio.run(iter_retgen("Who?", rollout, iterations=iterations)) == str(iterations)
    assert [top_k for _, top_k in rollout.searches] == [5] * iterations


def test_a_response_without_an_answer_line_is_the_answer():
    rollout = ScriptedRollout("iter_retgen", ["Osk", "Mira."])
    assert asyncio.run(iter_retgen("Who?", rollout)) == "Mira."


def test_it_may_answer_directly_in_every_round():
    """FlashRAG's Iter-RetGen, which ReSP's Table 2 has: three rounds without a chain of thought."""
    rollout = ScriptedRollout("iter_retgen", ["Osk", "Tolen", "Mira"])
    assert asyncio.run(iter_retgen("Who?", rollout, top_k=1, iterations=3, reasoning=False)) == "Mira"
    assert rollout.stages == ["answer"] * 3
    assert [query for query, _ in rollout.searches] == ["Who?", "Osk Who?", "Tolen Who?"]


@settings(max_examples=40)
@given(st.data(), st.integers(1, 5))
def test_whatever_the_model_says_rounds_are_bounded_and_the_answer_is_from_the_last_response(data, iterations):
    said = []

    def reply(stage, told):
        said.append(data.draw(SCRIPTED_TEXTS))
        return said[-1]

    rollout = ScriptedRollout("iter_retgen", reply)
    assert asyncio.run(iter_retgen("Who?", rollout, iterations=iterations)) in said[-1]
    assert len(rollout.searches) == len(rollout.calls) == iterations
