"""NotesWriting: each document is read separately and replaced by a note on what is new for the query."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.ground.records import Passage
from notewriter.methods.notes_writing import as_observation, take_notes
from notewriter.methods.renact import NOTE
from notewriter.models.client import RequestRefused
from notewriter.models.completions import NoAnswer
from notewriter.testing import ScriptedRollout

BRIDGE, RIVER, TOWN = (Passage(name, name.title(), f"About the {name}.") for name in ("bridge", "river", "town"))


def take(replies, passages, notes=None, **options) -> tuple[list[Passage], ScriptedRollout]:
    rollout = ScriptedRollout("renact", replies)
    taken = asyncio.run(take_notes(rollout, NOTE, "Who built it?", passages, [] if notes is None else notes, **options))
    return taken, rollout


def test_every_document_is_read_by_itself_with_the_query_and_what_earlier_searches_noted():
    """In the paper the notes of one search do not depend on each other, and may repeat each other (Tables 10, 12)."""
    notes = [Passage("old", "Old", "An old note.")]
    replies = ["YES#Mira built it.", "NO#No relevant information.", "YES#Osk paid."]
    taken, rollout = take(replies, [BRIDGE, RIVER, TOWN], notes)
    assert rollout.variables("note") == [
        {"query": "Who built it?", "passages": ["bridge"], "note": "Old - An old note."},
        {"query": "Who built it?", "passages": ["river"], "note": "Old - An old note."},
        {"query": "Who built it?", "passages": ["town"], "note": "Old - An old note."},
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


@given(st.lists(SCRIPTED_TEXTS | SCRIPTED_TEXTS.map("YES#{}".format), min_size=3, max_size=3))
def test_whatever_the_note_taker_says_each_document_gives_one_note_or_none(replies):
    taken, rollout = take(replies, [BRIDGE, RIVER, TOWN])
    assert len(rollout.calls) == 3
    titles = [note.title for note in taken]
    assert titles == [title for title in ("Bridge", "River", "Town") if title in titles]
    assert all(note.text for note in taken)


def with_context(words: int):
    """A note-taker whose endpoint refuses documents of more words than its context holds; it notes their numbers."""

    def reply(stage, told):
        (passage,) = told["passages"]
        if len(passage.text.split()) > words:
            raise RequestRefused("the prompt is longer than the context")
        numbers = [word for word in passage.text.split() if word.isdecimal()]
        return f"YES#{' '.join(numbers)}" if numbers else "NO#"

    return reply


def test_a_page_beyond_the_context_is_read_in_parts_and_gives_one_note():
    page = Passage("page", "Page", "\n".join(["1 one", "two", "three", "four 4", "five 5", "six"]))
    taken, rollout = take(with_context(3), [BRIDGE, page])
    assert taken == [Passage("page", "Page", "1\n4\n5")]
    # At line breaks, and nothing of it is lost.
    read = [passage.text for *_, told in rollout.calls for passage in told["passages"] if passage.id == "page"]
    assert read[-1].endswith("six") and {"1 one\ntwo", "four 4"} & set(read)
    assert rollout.trace.counts == {"split_pages": 1}


def test_a_page_that_a_filter_refuses_is_an_error_of_the_question_and_not_asked_in_parts():
    def reply(stage, told):
        raise RequestRefused("finish_reason content_filter") from NoAnswer("content_filter", of_prompt=True)

    with pytest.raises(RequestRefused):
        take(reply, [Passage("page", "Page", "a word " * 1000)])


def test_a_page_that_is_refused_in_the_smallest_part_too_is_skipped_and_the_question_goes_on():
    page = Passage("page", "Page", "a word " * 1000)
    taken, rollout = take(with_context(0), [page])
    assert taken == [] and rollout.trace.counts == {"split_pages": 1, "skipped_page_parts": 64}
    taken, rollout = take(with_context(0), [Passage("page", "Page", "x" * 1000)])
    assert taken == [] and rollout.trace.counts == {"skipped_page_parts": 1}


@given(st.text(alphabet="ab \n", max_size=80), st.integers(0, 9))
def test_however_a_page_is_split_no_word_is_read_twice_or_torn(text, context):
    seen = []

    def reply(stage, told):
        words = told["passages"][0].text.split()
        if len(words) > context:
            raise RequestRefused("too long")
        seen.extend(words)
        return "NO#"

    _, rollout = take(reply, [Passage("page", "Page", text)])
    assert set(seen) <= set(text.split()) and len(seen) <= len(text.split())
    assert rollout.trace.counts.get("skipped_page_parts") or seen == text.split()
