"""Self-RAG as LangGraph's graph: which grade leads where, what each node sees, and where it ends."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.langchain_self_rag import langchain_self_rag
from notewriter.testing import ScriptedRollout


def run(replies, **options) -> tuple[str, ScriptedRollout]:
    rollout = ScriptedRollout("langchain_self_rag", replies)
    return asyncio.run(langchain_self_rag("Who?", rollout, **options)), rollout


def test_the_answer_is_written_from_the_relevant_passages_and_graded_by_them_and_the_question():
    """DeepNote, appendix C.1: through LangChain on a chat model, so that no reflection tokens are needed."""
    answer, rollout = run(["yes", "No.", "Yes", "Mira", "yes", "yes"], top_k=3)
    assert answer == "Mira" and rollout.searches == [("Who?", 3)]
    assert rollout.stages == ["grade"] * 3 + ["answer", "grade_support", "grade_usefulness"]
    assert [told["passages"] for told in rollout.variables("grade")] == [["Who?.0"], ["Who?.1"], ["Who?.2"]]
    relevant = ["Who?.0", "Who?.2"]
    assert rollout.variables("answer") == [{"question": "Who?", "passages": relevant, "answer_style": "short"}]
    assert rollout.variables("grade_support") == [{"passages": relevant, "answer": "Mira"}]
    assert rollout.variables("grade_usefulness") == [{"question": "Who?", "answer": "Mira"}]
    assert rollout.roles == {
        "grade": "judge",
        "answer": "answer",
        "grade_support": "judge",
        "grade_usefulness": "judge",
    }
    assert rollout.trace.counts == {"steps": 3}


def test_without_a_relevant_passage_the_question_is_rewritten_and_searched():
    answer, rollout = run(["no", "Who built Osk?", "yes", "Mira", "yes", "yes"], top_k=1)
    assert answer == "Mira" and rollout.searches == [("Who?", 1), ("Who built Osk?", 1)]
    assert rollout.stages[:3] == ["grade", "rewrite", "grade"] and rollout.roles["rewrite"] == "query"
    # The new question takes the place of the former one everywhere, as in the graph.
    for stage in ("answer", "grade_usefulness"):
        assert rollout.variables(stage)[0]["question"] == "Who built Osk?"


def test_an_answer_that_the_passages_do_not_support_is_drawn_again():
    answer, rollout = run(["yes", "Osk", "no", "Mira", "yes", "yes"], top_k=1)
    assert answer == "Mira" and len(rollout.searches) == 1
    assert rollout.stages[1:] == ["answer", "grade_support"] * 2 + ["grade_usefulness"]


def test_an_answer_that_does_not_resolve_the_question_leads_to_another_question():
    replies = ["yes", "A bridge", "yes", "no", "Who built it?", "yes", "Mira", "yes", "yes"]
    answer, rollout = run(replies, top_k=1)
    assert answer == "Mira" and rollout.searches == [("Who?", 1), ("Who built it?", 1)]
    assert rollout.variables("rewrite") == [{"question": "Who?"}]


def test_a_grade_that_cannot_be_read_is_no():
    answer, rollout = run(["Perhaps", "yes", "Mira", "yes", "yes"], top_k=2)
    assert answer == "Mira" and rollout.variables("answer")[0]["passages"] == ["Who?.1"]
    assert rollout.trace.counts == {"steps": 3, "unreadable_grades": 1}


@pytest.mark.parametrize(
    ("grades", "answers"), [({"grade_support": "no"}, 23), ({"grade_usefulness": "no"}, 6), ({"grade": "no"}, 1)]
)
def test_it_ends_after_langgraphs_25_steps_with_an_answer(grades, answers):
    """In the last case, none but the one that is then written from what was found last."""
    reply = lambda stage, told: grades.get(stage, "Mira" if stage == "answer" else "yes")  # noqa: E731
    answer, rollout = run(reply)
    assert answer == "Mira" and rollout.stages.count("answer") == answers
    assert rollout.variables("answer")[-1]["passages"]
    assert rollout.trace.counts == {"steps": 25, "unfinished": 1}


@settings(max_examples=40)
@given(st.data(), st.integers(1, 12), st.integers(1, 3))
def test_whatever_the_model_says_steps_and_searches_are_bounded(data, max_step, top_k):
    replies = SCRIPTED_TEXTS | st.sampled_from(["yes", "no"])
    answer, rollout = run(lambda stage, told: data.draw(replies), max_step=max_step, top_k=top_k)
    assert rollout.trace.counts["steps"] <= max_step and len(rollout.searches) <= (max_step + 2) // 3
    assert isinstance(answer, str)
