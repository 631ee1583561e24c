"""IRCoT: the passages of each sentence, its query, and the end of the chain."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.ircot import ircot
from notewriter.testing import ScriptedRollout


def run(rollout: ScriptedRollout, **options) -> str:
    return asyncio.run(ircot("Who?", rollout, **options))


def test_every_sentence_is_the_next_query_and_passages_gather():
    found = {"Who?": ["a", "b"], "Osk has a bridge.": ["b", "c"], "Mira built it.": ["d"]}
    rollout = ScriptedRollout(
        "ircot",
        ["Osk has a bridge. It is old.", "Mira built it.", "So the answer is: Mira."],
        lambda query, top_k: found[query],
    )
    assert run(rollout) == "Mira"
    assert rollout.searches == [("Who?", 5), ("Osk has a bridge.", 5), ("Mira built it.", 5)]
    assert rollout.variables("step") == [
        {"question": "Who?", "passages": passages, "sentences": sentences, "answer_style": "short"}
        for passages, sentences in (
            (["a", "b"], []),
            (["a", "b", "c"], ["Osk has a bridge."]),
            (["a", "b", "c", "d"], ["Osk has a bridge.", "Mira built it."]),
        )
    ]
    assert rollout.roles == {"step": "policy"}
    assert (rollout.trace.note, rollout.trace.counts) == (None, {})


def test_every_search_adds_to_the_passages_whatever_top_k():
    """ReSP, Figure 4: with a limit of 15, eight searches of 15 passages would read no more than one."""
    rollout = ScriptedRollout("ircot", [*(f"Step {number}." for number in range(7)), "So the answer is: Mira"])
    run(rollout, top_k=15)
    assert [len(told["passages"]) for told in rollout.variables("step")] == list(range(15, 135, 15))


def test_passages_are_bounded():
    rollout = ScriptedRollout("ircot", ["One.", "Two.", "So the answer is: Mira"])
    run(rollout, top_k=3, max_passages=4)
    assert rollout.variables("step")[-1]["passages"] == ["Who?.0", "Who?.1", "Who?.2", "One..0"]


@pytest.mark.parametrize(("replies", "steps"), [(["One.", "Two.", "Mira"], 2), (["One.", "", "Mira"], 2)])
def test_a_chain_without_an_answer_is_read_by_the_answering_model(replies, steps):
    rollout = ScriptedRollout("ircot", replies)
    assert run(rollout, max_step=2, top_k=1, answer_style="yes_no") == "Mira"
    assert rollout.stages == ["step"] * steps + ["answer"]
    assert rollout.roles["answer"] == "answer"
    (told,) = rollout.variables("answer")
    assert told["passages"] == ["Who?.0", "One..0"] and told["sentences"][0] == "One."
    assert rollout.trace.counts == {"unfinished": 1}


@pytest.mark.parametrize(
    ("style", "reply", "answer"),
    [
        ("short", "So the answer is: Symphony No. 5 in C minor.", "Symphony No. 5 in C minor"),
        ("short", "So the answer is: Warner Bros. Pictures", "Warner Bros. Pictures"),
        ("short", "So the answer is: Mira. She built it in 1871.", "Mira"),
        ("yes_no", "So the answer is: No. It was built in 1871.", "No"),
        ("short", "1. So the answer is: Mira.", "Mira"),
        ("short", "- Therefore, the answer is **Mira**.", "Mira"),
        ("list", "So the answer is: 1. Mira Tolen 2. Osk", "1. Mira Tolen 2. Osk"),
    ],
)
def test_an_answer_is_a_sentence_or_a_whole_list(style, reply, answer):
    rollout = ScriptedRollout("ircot", [reply])
    assert run(rollout, answer_style=style) == answer
    assert rollout.trace.counts == {}


def test_a_long_answer_is_written_from_the_chain_once_a_sentence_states_it():
    stated = "So the answer is: Osk was built in 1871. A second bridge was built in 1902."
    rollout = ScriptedRollout("ircot", ["Osk is a bridge.", stated, "Osk was built in 1871. There are two bridges."])
    assert run(rollout, top_k=1, answer_style="long") == "Osk was built in 1871. There are two bridges."
    assert rollout.variables("answer")[0]["sentences"] == ["Osk is a bridge.", stated]
    assert rollout.trace.counts == {}


def test_with_notes_an_answer_from_an_unfinished_chain_sees_all_of_them():
    rollout = ScriptedRollout("ircot", ["YES#Osk has a bridge.", "One.", "YES#Mira built it.", "Two.", "Mira"])
    assert run(rollout, top_k=1, max_step=2, notes=True) == "Mira"
    texts = [passage.text for passage in rollout.calls[-1][2]["passages"]]
    assert texts == ["Osk has a bridge.", "Mira built it."]


def test_with_notes_a_step_sees_those_of_its_own_search_alone():
    """NotesWriting, equation 10; the note-taker still knows what earlier searches noted."""
    replies = [
        "YES#Osk has a bridge.",
        "NO#",
        "Osk has a bridge.",
        "NO#",
        "YES#Mira built it.",
        "So the answer is: Mira",
    ]
    rollout = ScriptedRollout("ircot", replies, lambda query, top_k: [query[:3], "river"])
    assert run(rollout, notes=True) == "Mira"
    assert [told["query"] for told in rollout.variables("note")] == ["Who?"] * 2 + ["Osk has a bridge."] * 2
    last = [call for call in rollout.calls if call[0] == "step"][-1][2]["passages"]
    assert [passage.text for passage in last] == ["Mira built it."]
    assert [told["note"] for told in rollout.variables("note")] == ["", "", *["title Who - Osk has a bridge."] * 2]
    assert rollout.trace.note == "title Who - Osk has a bridge.\ntitle river - Mira built it."


@settings(max_examples=40)
@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_whatever_the_model_says_the_limits_hold(data, max_step, top_k, notes):
    replies = SCRIPTED_TEXTS | st.sampled_from(["It is. So.", "So the answer is: Mira", "YES#Mira."])
    rollout = ScriptedRollout("ircot", lambda stage, told: data.draw(replies))
    run(rollout, max_step=max_step, top_k=top_k, max_passages=4, notes=notes)
    steps = rollout.variables("step")
    assert 1 <= len(steps) == len(rollout.searches) <= max_step
    assert notes or all(len(set(told["passages"])) <= 4 for told in steps)
    assert rollout.stages.count("answer") == (rollout.stages[-1] == "answer")
