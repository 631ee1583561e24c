"""In-context: as much of the ranked corpus as fits in the budget."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.in_context import in_context
from notewriter.testing import ScriptedRollout


def run(found, reply="Mira", **options):
    rollout = ScriptedRollout("in_context", lambda stage, told: reply, lambda query, top_k: found[:top_k])
    return asyncio.run(in_context("Who?", rollout, **options)), rollout


def test_a_corpus_that_fits_is_in_the_prompt_as_a_whole():
    answer, rollout = run(["a", "b c", "d"], answer_style="yes_no")
    assert answer == "Mira"
    assert rollout.searches == [("Who?", 1000)]
    assert rollout.variables("answer") == [
        {"question": "Who?", "passages": ["a", "b c", "d"], "answer_style": "yes_no"}
    ]
    assert rollout.roles == {"answer": "answer"}


def test_passages_go_in_best_first_until_the_next_one_would_exceed_the_budget():
    # A title has one word more than its text here: 1 + 2, 2 + 3, 1 + 2 words.
    for budget, kept in ((2, []), (3, ["a"]), (7, ["a"]), (8, ["a", "b c"]), (11, ["a", "b c", "d"])):
        _, rollout = run(["a", "b c", "d"], max_words=budget)
        assert rollout.variables("answer")[0]["passages"] == kept


@settings(max_examples=40)
@given(SCRIPTED_TEXTS, st.lists(st.text(), max_size=9, unique=True), st.integers(1, 30), st.integers(1, 9))
def test_the_budget_holds_whatever_the_corpus(reply, found, max_words, top_k):
    answer, rollout = run(found, reply, max_words=max_words, top_k=top_k)
    (told,) = rollout.variables("answer")
    assert sum(len(f"title {name} {name}".split()) for name in told["passages"]) <= max_words
    assert told["passages"] == found[: len(told["passages"])]
    assert len(told["passages"]) <= top_k
    assert (answer, len(rollout.searches)) == (reply.strip(), 1)
