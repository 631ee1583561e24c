"""Search-o1: reasoning that halts at a query and continues with its result."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.search_o1 import search_o1, shortened
from notewriter.testing import ScriptedRollout


def query(text):
    return f"I need {text}. <|begin_search_query|> {text} <|end_search_query|> and more"


def searched(text, result):
    return (
        f"I need {text}. <|begin_search_query|> {text} <|end_search_query|>\n\n"
        f"<|begin_search_result|>{result}<|end_search_result|>\n\n"
    )


def reasoning_told(rollout):
    """The assistant's own message that each turn continues; none before the first search."""
    turns = [told["turns"] for told in rollout.variables("reason")]
    assert all([turn["role"] for turn in told] == ["assistant"] for told in turns[1:]) and turns[0] == []
    return [told[0]["content"] for told in turns[1:]]


def test_the_reasoning_goes_on_with_what_reason_in_documents_made_of_the_passages():
    rollout = ScriptedRollout(
        "search_o1", [query("the town"), "It is Tolen.", query("its mayor"), "She is Mira.", "So:\nAnswer: Mira"]
    )
    assert asyncio.run(search_o1("Who?", rollout, top_k=1)) == "Mira"
    assert rollout.stages == ["reason", "reason_in_documents"] * 2 + ["reason"]
    assert rollout.searches == [("the town", 1), ("its mayor", 1)]
    first = searched("the town", "It is Tolen.")
    both = first + searched("its mayor", "She is Mira.")
    # One text, which each turn continues (run_search_o1.py: the prompt grows by what was generated and found).
    assert reasoning_told(rollout) == [first, both]
    assert rollout.variables("reason_in_documents")[1] == {
        "question": "Who?",
        "reasoning": shortened(f"{first}I need its mayor. <|begin_search_query|> its mayor <|end_search_query|>"),
        "query": "its mayor",
        "passages": ["its mayor.0"],
    }
    assert rollout.roles == {"reason": "policy", "reason_in_documents": "notes"}
    assert rollout.trace.note == "It is Tolen.\nShe is Mira."


def test_reason_in_documents_sees_the_first_step_the_last_three_and_every_search():
    """The authors' run_search_o1.py, lines 559-574."""
    lines = [f"line {number}" for number in range(1, 11)]
    lines[4] += " <|begin_search_query|> x <|end_search_query|>"
    lines[5] = "<|begin_search_result|>y<|end_search_result|>"
    assert shortened("\n\n".join(lines[:4])) == "\n\n".join(f"Step {n}: line {n}" for n in range(1, 5))
    assert shortened("\n\n".join(lines[:6]) + "\n" + "\n".join(lines[6:])).split("\n\n") == [
        "Step 1: line 1",
        "...",
        f"Step 5: {lines[4]}",
        f"Step 6: {lines[5]}",
        "...",
        "Step 8: line 8",
        "Step 9: line 9",
        "Step 10: line 10",
    ]


def test_what_was_searched_before_is_not_searched_again():
    rollout = ScriptedRollout("search_o1", [query("x"), "found", query("x"), "Answer: Mira"])
    assert asyncio.run(search_o1("Who?", rollout)) == "Mira"
    assert rollout.searches == [("x", 10)]
    assert reasoning_told(rollout)[-1].endswith("its result stands above.<|end_search_result|>\n\n")
    assert rollout.trace.counts == {"repeated_queries": 1}


def test_after_the_last_search_that_is_allowed_the_reasoning_is_told_so():
    rollout = ScriptedRollout("search_o1", [query("a"), "found", query("b"), query("c"), "Answer: Mira"])
    assert asyncio.run(search_o1("Who?", rollout, max_search=1)) == "Mira"
    assert [text for text, _ in rollout.searches] == ["a"]
    assert reasoning_told(rollout)[-1].count("No further search is possible") == 2


def test_reasoning_that_never_ends_is_ended():
    rollout = ScriptedRollout(
        "search_o1", lambda stage, told: "Mira" if stage == "answer" else query(str(len(rollout.calls)))
    )
    # The last reasoning asks for a search: no answer, so one is written from all of it.
    assert asyncio.run(search_o1("Who?", rollout)) == "Mira"
    assert (rollout.stages.count("reason"), len(rollout.searches)) == (15, 10)
    assert rollout.roles["answer"] == "answer"
    assert rollout.variables("answer")[0]["reasoning"].count("<|end_search_result|>") == 15
    assert rollout.trace.counts == {"unfinished": 1}


def test_a_mark_without_a_query_ends_the_reasoning():
    rollout = ScriptedRollout("search_o1", ["Answer: Osk\n<|begin_search_query|> \n <|end_search_query|>"])
    assert asyncio.run(search_o1("Who?", rollout)).startswith("Osk")
    assert rollout.searches == []


def test_garbled_marks_do_not_search():
    """What ReaRAG's Table 2 counts: the reasoning stays without retrieval."""
    rollout = ScriptedRollout("search_o1", ["begin_search_query| the town |end_search_query|\nAnswer: Tolen"])
    assert asyncio.run(search_o1("Who?", rollout)) == "Tolen"
    assert rollout.searches == []


@settings(max_examples=25)
@given(st.data(), st.integers(1, 4), st.integers(1, 6))
def test_whatever_the_model_says_searches_and_turns_are_bounded(data, max_search, max_turn):
    searching = st.text(max_size=3).map(query)
    rollout = ScriptedRollout("search_o1", lambda stage, told: data.draw(SCRIPTED_TEXTS | searching))
    asyncio.run(search_o1("Who?", rollout, max_search=max_search, max_turn=max_turn))
    assert rollout.stages.count("reason") <= max_turn
    assert len(rollout.searches) == rollout.stages.count("reason_in_documents") <= max_search
    assert len({text for text, _ in rollout.searches}) == len(rollout.searches)
