"""SuRe: candidates, a summary for each, and the scores that choose among them."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.sure import sure
from notewriter.testing import ScriptedRollout

DRAW = {("Mira", "Osk"): "1", ("Osk", "Mira"): "1"}
MIRA = {("Mira", "Osk"): "1", ("Osk", "Mira"): "2"}
OSK = {("Mira", "Osk"): "2", ("Osk", "Mira"): "1"}


def rollout_of(candidates, valid=(), ranks=None):
    """The model finds the summaries of `valid` to support them, and prefers one of an ordered pair by `ranks`."""

    def reply(stage, told):
        if stage == "candidates":
            return candidates
        if stage == "summarize":
            return f"about {told['candidate']}"
        if stage == "validate":
            return "True" if told["candidate"] in valid else "False"
        return ranks[tuple(summary.removeprefix("about ") for summary in told["summaries"])]

    return ScriptedRollout("sure", reply)


@pytest.mark.parametrize(
    ("valid", "ranks", "answer"),
    [
        ((), MIRA, "Mira"),
        ((), OSK, "Osk"),
        (("Mira", "Osk"), OSK, "Osk"),
        (("Osk",), DRAW, "Osk"),
        (("Mira",), DRAW, "Mira"),
        # Validity and ranking weigh the same: the earlier candidate, which the model found likelier, wins a draw.
        (("Mira",), OSK, "Mira"),
        (("Osk",), MIRA, "Mira"),
        ((), DRAW, "Mira"),
        # An unreadable reply is not a vote; the other order decides.
        ((), {("Mira", "Osk"): "both", ("Osk", "Mira"): "Summary 1."}, "Osk"),
        ((), {("Mira", "Osk"): "", ("Osk", "Mira"): ""}, "Mira"),
    ],
)
def test_the_candidate_with_the_higher_sum_of_validity_and_ranking_wins(valid, ranks, answer):
    rollout = rollout_of("Mira\nOsk", valid, ranks)
    assert asyncio.run(sure("Who?", rollout)) == answer
    assert rollout.trace.note == f"about {answer}"
    assert rollout.stages == ["candidates", "summarize", "summarize", "validate", "validate", "rank", "rank"]


@pytest.mark.parametrize(
    ("valid", "ranks", "counts"),
    [
        (("Mira",), MIRA, {}),
        ((), {("Mira", "Osk"): "both", ("Osk", "Mira"): "Summary 1."}, {"unreadable_verdicts": 1}),
        ((), {("Mira", "Osk"): "both", ("Osk", "Mira"): ""}, {"unreadable_verdicts": 2}),
    ],
)
def test_verdicts_that_cannot_be_read_are_counted(valid, ranks, counts):
    rollout = rollout_of("Mira\nOsk", valid, ranks)
    asyncio.run(sure("Who?", rollout))
    assert rollout.trace.counts == counts
    unsure = ScriptedRollout("sure", ["Mira\nOsk", "a", "b", "Perhaps.", "False", "1", "2"])
    asyncio.run(sure("Who?", unsure))
    assert unsure.trace.counts == {"unreadable_verdicts": 1}


def test_every_stage_is_told_what_it_needs():
    rollout = rollout_of("Mira\nOsk", (), MIRA)
    asyncio.run(sure("Who?", rollout, top_k=2))
    assert rollout.searches == [("Who?", 2)]
    passages = ["Who?.0", "Who?.1"]
    assert rollout.variables("candidates") == [
        {"question": "Who?", "passages": passages, "max_candidates": 2, "answer_style": "short"}
    ]
    assert rollout.variables("summarize")[1] == {"question": "Who?", "passages": passages, "candidate": "Osk"}
    assert rollout.variables("validate")[1] == {"question": "Who?", "candidate": "Osk", "summary": "about Osk"}
    assert [told["summaries"] for told in rollout.variables("rank")] == [
        ["about Mira", "about Osk"],
        ["about Osk", "about Mira"],
    ]
    assert rollout.roles == {"candidates": "answer", "summarize": "notes", "validate": "judge", "rank": "judge"}


def test_the_paper_summarizes_ten_passages():
    rollout = rollout_of("Mira")
    asyncio.run(sure("Who?", rollout))
    assert rollout.searches == [("Who?", 10)]


def test_of_three_candidates_the_one_that_is_preferred_most_wins():
    order = ["Tolen", "Osk", "Mira"]
    ranks = {
        (one, other): "1" if order.index(one) < order.index(other) else "2"
        for one in order
        for other in order
        if one != other
    }
    rollout = rollout_of("1. Mira\n2. Osk\n3. Tolen\n4. Ann", (), ranks)
    assert asyncio.run(sure("Who?", rollout, max_candidates=3)) == "Tolen"
    assert len(rollout.variables("rank")) == 6


@pytest.mark.parametrize(("reply", "answer"), [("Mira", "Mira"), ("Mira\nmira", "Mira"), ("", "")])
def test_without_a_choice_nothing_is_compared(reply, answer):
    rollout = rollout_of(reply)
    assert asyncio.run(sure("Who?", rollout)) == answer
    assert rollout.stages == ["candidates"]


@settings(max_examples=40)
@given(st.data(), st.integers(1, 4))
def test_whatever_the_model_says_the_answer_is_a_candidate_and_calls_are_bounded(data, max_candidates):
    first = data.draw(SCRIPTED_TEXTS)
    rollout = ScriptedRollout("sure", lambda stage, told: first if stage == "candidates" else data.draw(SCRIPTED_TEXTS))
    answer = asyncio.run(sure("Who?", rollout, max_candidates=max_candidates))
    assert answer in first
    candidates = len(rollout.variables("summarize"))
    assert candidates <= max_candidates
    assert len(rollout.calls) <= 1 + 2 * candidates + candidates * (candidates - 1)
    assert len(rollout.searches) == 1
