"""NotesWriting: each document is read separately and replaced by a note on what is new for the query."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_rollout import TEXTS, ScriptedRollout

from notewriter.methods.notes_writing import as_observation, take_notes
from notewriter.methods.renact import NOTE
from notewriter.records import Passage

BRIDGE, RIVER, TOWN = (Passage(name, name.title(), f"About the {name}.") for name in ("bridge", "river", "town"))


def take(replies, passages, notes=None) -> tuple[list[Passage], ScriptedRollout]:
    rollout = ScriptedRollout("renact", replies)
    taken = asyncio.run(take_notes(rollout, NOTE, "Who built it?", passages, [] if notes is None else notes))
    return taken, rollout


def test_every_document_is_read_by_itself_with_the_query_and_what_is_noted_so_far():
    notes = [Passage("old", "Old", "An old note.")]
    taken, rollout = take(
        ["YES#Mira built it.", "NO#No relevant information.", "YES#Osk paid."], [BRIDGE, RIVER, TOWN], notes
    )
    assert rollout.told("note") == [
        {"query": "Who built it?", "passages": ["bridge"], "note": "Old - An old note."},
        {"query": "Who built it?", "passages": ["river"], "note": "Old - An old note.\nBridge - Mira built it."},
        {"query": "Who built it?", "passages": ["town"], "note": "Old - An old note.\nBridge - Mira built it."},
    ]
    assert rollout.roles == {"note": "notes"}
    assert taken == [Passage("bridge", "Bridge", "Mira built it."), Passage("town", "Town", "Osk paid.")]
    assert notes == [Passage("old", "Old", "An old note."), *taken]
    assert rollout.trace.note == "Old - An old note.\nBridge - Mira built it.\nTown - Osk paid."


def test_an_observation_numbers_the_notes_there_are():
    taken, _ = take(["NO#", "YES#It flows.", "YES#It stands."], [BRIDGE, RIVER, TOWN])
    assert as_observation(taken) == "(Result 1) River - It flows.\n(Result 2) Town - It stands."


def test_nothing_relevant_is_said_so():
    taken, rollout = take(["NO#No relevant information.", "NO#Noted already."], [BRIDGE, RIVER])
    assert as_observation(taken) == "No relevant information, try a different search term."
    assert (rollout.trace.note, rollout.trace.counts) == ("", {})


def test_a_reply_that_is_no_note_is_counted_and_kept_out():
    taken, rollout = take(["Mira built it.", "YES#It flows."], [BRIDGE, RIVER])
    assert [note.title for note in taken] == ["River"]
    assert rollout.trace.counts == {"unreadable_notes": 1}


@pytest.mark.parametrize("reply", ["YES#", "yes # \n"])
def test_an_empty_note_is_none(reply):
    taken, rollout = take([reply], [BRIDGE])
    assert taken == [] and rollout.trace.counts == {}


@given(st.lists(TEXTS | TEXTS.map("YES#{}".format), min_size=3, max_size=3))
def test_whatever_the_note_taker_says_each_document_gives_one_note_or_none(replies):
    taken, rollout = take(replies, [BRIDGE, RIVER, TOWN])
    assert len(rollout.calls) == 3
    titles = [note.title for note in taken]
    assert titles == [title for title in ("Bridge", "River", "Town") if title in titles]
    assert all(note.text for note in taken)
