"""RECOMP: passages are compressed for the question, and the summary alone is prepended, if there is one."""

import asyncio

import pytest

from notewriter.methods.recomp import recomp
from notewriter.testing import ScriptedRollout


def run(*replies, **options) -> tuple[str, ScriptedRollout]:
    rollout = ScriptedRollout("recomp", replies)
    return asyncio.run(recomp("Who?", rollout, **options)), rollout


def test_the_notes_model_compresses_and_another_answers_from_the_summary_alone():
    answer, rollout = run("Mira built it.", "Mira", top_k=2, answer_style="long")
    assert answer == "Mira" and rollout.searches == [("Who?", 2)]
    assert rollout.roles == {"compress": "notes", "answer": "answer"}
    assert rollout.variables("compress") == [{"question": "Who?", "passages": ["Who?.0", "Who?.1"]}]
    assert rollout.variables("answer") == [{"question": "Who?", "note": "Mira built it.", "answer_style": "long"}]
    assert rollout.trace.note == "Mira built it." and rollout.trace.counts == {}


@pytest.mark.parametrize("reply", ["", "nothing", "Nothing.", "**Nothing**"])
def test_an_empty_summary_leaves_the_question_alone(reply):
    """Selective augmentation (section 3): the prompt is then that of a model without retrieval."""
    _, rollout = run(reply, "Mira")
    assert rollout.trace.note == "" and rollout.trace.counts == {"empty_summaries": 1}
    (told,) = rollout.variables("answer")
    (message,) = rollout.resources.prompts.render("recomp/answer", **told)
    assert message["content"].startswith("Answer the question.") and message["content"].endswith("Question: Who?")


def test_a_summary_may_say_that_nothing_is_left():
    _, rollout = run("Nothing is left of the bridge.", "Mira")
    assert rollout.trace.note == "Nothing is left of the bridge."


def test_the_summary_comes_before_the_question():
    _, rollout = run("Mira built it.", "Mira")
    (message,) = rollout.resources.prompts.render("recomp/answer", **rollout.variables("answer")[0])
    assert message["content"].startswith("Mira built it.\n\nAnswer the question.")
