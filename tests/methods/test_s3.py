"""s3: a searcher selects documents, a frozen answerer answers from them."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.s3 import s3
from notewriter.rollouts.prompts import Prompts
from notewriter.testing import ScriptedRollout


def turn(query, important="", thought="Hm."):
    selection = f"<important_info>{important}</important_info>\n<search_complete>False</search_complete>\n"
    return f'<think>{thought}</think>\n{selection if important else ""}<query>\n{{"query": "{query}"}}\n</query>'


DONE = "<important_info>[1]</important_info>\n<search_complete>True</search_complete>"


def test_the_answerer_gets_the_first_documents_and_the_selected_ones():
    rollout = ScriptedRollout("s3", [turn("the town"), turn("its mayor", "[2, 8]"), DONE, "Mira"])
    assert asyncio.run(s3("Who?", rollout)) == "Mira"
    assert rollout.searches == [("Who?", 3), ("the town", 8), ("its mayor", 8)]
    assert rollout.variables("answer") == [
        {
            "question": "Who?",
            "passages": ["Who?.0", "Who?.1", "Who?.2", "the town.1", "the town.7", "its mayor.0"],
            "answer_style": "short",
        }
    ]
    assert rollout.roles == {"search": "query", "answer": "answer"}
    assert rollout.trace.counts == {}


def test_the_searcher_goes_on_with_its_own_text_and_what_was_found():
    rollout = ScriptedRollout("s3", [turn("the town"), DONE, "Mira"])
    asyncio.run(s3("Who?", rollout, top_k=1))
    first, second = rollout.variables("search")
    assert (first["turns"], first["passages"]) == ([], ["Who?.0", "Who?.1", "Who?.2"])
    information = '<information>Doc 1(Title: "title the town.0") the town.0</information>'
    assert second["turns"] == [{"role": "assistant", "content": f"{turn('the town')}\n\n{information}\n\n"}]


def test_a_search_may_be_complete_at_once():
    rollout = ScriptedRollout("s3", ["<search_complete>\nTrue\n</search_complete>", "Mira"])
    assert asyncio.run(s3("Who?", rollout)) == "Mira"
    assert rollout.variables("answer")[0]["passages"] == ["Who?.0", "Who?.1", "Who?.2"]


def test_first_documents_can_be_selected_from_too():
    """The authors' code: a selection is of the documents before it."""
    rollout = ScriptedRollout("s3", [turn("the town", "[3]"), DONE, "Mira"])
    asyncio.run(s3("Who?", rollout, top_k=2))
    assert rollout.variables("answer")[0]["passages"] == ["Who?.2", "the town.0"]


def test_documents_on_which_the_searcher_says_nothing_count_as_selected():
    rollout = ScriptedRollout("s3", [turn("a"), turn("b"), "<search_complete>True</search_complete>", "Mira"])
    asyncio.run(s3("Who?", rollout, top_k=1, initial_top_k=1))
    assert rollout.variables("answer")[0]["passages"] == ["Who?.0", "a.0", "b.0"]


def test_after_the_last_turn_it_may_select_once_more_but_not_search():
    rollout = ScriptedRollout("s3", [turn("a"), turn("b", "[1]"), turn("c", "[1]"), turn("d", "[2]"), "Mira"])
    asyncio.run(s3("Who?", rollout, top_k=2, initial_top_k=1))
    assert [query for query, _ in rollout.searches] == ["Who?", "a", "b", "c"]
    assert rollout.variables("answer")[0]["passages"] == ["Who?.0", "a.0", "b.0", "c.1"]
    assert rollout.trace.counts == {"unfinished": 1}


def test_a_turn_without_a_query_is_followed_by_a_notice_that_opens_one():
    rollout = ScriptedRollout("s3", ["I am not sure.", '{"query": "the town"}</query>', DONE, "Mira"])
    asyncio.run(s3("Who?", rollout, top_k=1))
    assert rollout.searches[1:] == [("the town", 1)]
    notice = Prompts().render("s3/notice")[0]["content"]
    texts = ["".join(each["content"] for each in told["turns"]) for told in rollout.variables("search")]
    assert texts[1] == f"I am not sure.\n\n{notice}\n<query>\n"
    assert texts[2].startswith(f'{texts[1]}{{"query": "the town"}}</query>\n\n<information>')
    assert rollout.trace.counts == {"invalid_actions": 1}


@pytest.mark.parametrize(
    ("written", "query"),
    [('{"query": "the town"}', "the town"), ("the town", "the town"), ('{"query": ["the town", "x"]}', "the town")],
)
def test_a_query_is_json_or_plain(written, query):
    rollout = ScriptedRollout("s3", [f"<query>{written}</query>", DONE, "Mira"])
    asyncio.run(s3("Who?", rollout))
    assert rollout.searches[1] == (query, 8)


def test_a_selection_of_nothing_is_counted_and_selects_nothing():
    rollout = ScriptedRollout("s3", [turn("a"), turn("b", "none"), DONE, "Mira"])
    asyncio.run(s3("Who?", rollout, top_k=2, initial_top_k=1))
    assert rollout.variables("answer")[0]["passages"] == ["Who?.0", "b.0"]
    assert rollout.trace.counts == {"unreadable_selections": 1}


@settings(max_examples=25)
@given(st.data(), st.integers(1, 4))
def test_whatever_the_model_says_turns_and_searches_are_bounded(data, max_turn):
    rollout = ScriptedRollout("s3", lambda stage, told: data.draw(SCRIPTED_TEXTS | st.text(max_size=3).map(turn)))
    asyncio.run(s3("Who?", rollout, max_turn=max_turn))
    assert rollout.stages.count("search") <= max_turn + 1
    assert len(rollout.searches) <= max_turn + 1
    assert rollout.stages[-1] == "answer"
