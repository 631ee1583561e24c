"""DeepNote as the paper and its code have it: what Tables 12 and 14 ask for, and how long a search may be."""

import asyncio
import re

import pytest

from notewriter.ground.records import Passage
from notewriter.methods.deepnote import deepnote
from notewriter.rollouts.prompts import Prompts
from notewriter.testing import ScriptedRollout

GIVEN = {"question": "Who?", "note": "Old.", "passages": [Passage("p", "Osk", "Osk is a town.")]}


@pytest.mark.parametrize("stage", ["init_note", "accumulate_knowledge"])
def test_a_note_is_asked_for_everything_useful_and_never_for_brevity(stage):
    (message,) = Prompts().render(f"deepnote/{stage}", **GIVEN)
    text = message["content"].lower()
    assert not re.search(r"\b(brief|briefly|short|concise|only|alone|leave out)\b", text)
    assert "passages' own wording" in text and "use nothing that is" in text


def test_the_first_note_has_all_the_useful_information_in_coherent_paragraphs():
    (message,) = Prompts().render("deepnote/init_note", **GIVEN)
    assert "all the information" in message["content"] and "coherent paragraphs" in message["content"]


def test_an_updated_note_adds_as_much_new_information_as_there_is():
    (message,) = Prompts().render("deepnote/accumulate_knowledge", **GIVEN)
    assert "as much information from the new passages as you can" in message["content"]
    assert "not in the notes yet" in message["content"]


def test_a_search_is_cut_at_500_characters_as_in_the_authors_code():
    """src/main.py: the new questions and then the question, cut."""
    replies = {"refine_query": "why " * 200, "decide": '{"status": "True"}'}
    rollout = ScriptedRollout("deepnote", lambda stage, told: replies.get(stage, "a note"))
    asyncio.run(deepnote("Who?", rollout, max_step=1, max_failure=1))
    assert rollout.searches == [("Who?", 5), (("why " * 200)[:500], 5)]
