"""Chain-of-Note: one search, notes on its passages, an answer from both."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.chain_of_note import chain_of_note
from notewriter.testing import ScriptedRollout


def test_the_answer_is_written_from_the_passages_and_the_notes_on_them():
    notes = "[1] Mira built it.\n[2] beside the point"
    rollout = ScriptedRollout("chain_of_note", [notes, "Mira"])
    assert asyncio.run(chain_of_note("Who?", rollout, top_k=2, answer_style="long")) == "Mira"
    assert rollout.searches == [("Who?", 2)]
    passages = ["Who?.0", "Who?.1"]
    assert rollout.variables("take_notes") == [{"question": "Who?", "passages": passages}]
    assert rollout.variables("answer") == [
        {"question": "Who?", "passages": passages, "notes": notes, "answer_style": "long"}
    ]
    assert rollout.roles == {"take_notes": "notes", "answer": "answer"}
    assert rollout.trace.note == notes


def test_the_paper_reads_five_passages():
    rollout = ScriptedRollout("chain_of_note", ["notes", "Mira"])
    asyncio.run(chain_of_note("Who?", rollout))
    assert rollout.searches == [("Who?", 5)]


@settings(max_examples=30)
@given(SCRIPTED_TEXTS, st.integers(1, 9))
def test_whatever_the_model_says_there_are_one_search_and_two_calls(reply, top_k):
    rollout = ScriptedRollout("chain_of_note", lambda stage, told: reply)
    assert asyncio.run(chain_of_note("Who?", rollout, top_k=top_k)) == reply.strip()
    assert (rollout.searches, rollout.stages) == ([("Who?", top_k)], ["take_notes", "answer"])
