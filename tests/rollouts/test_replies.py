"""What a run says of the replies that it used: those that were cut, and those that may think in unknown marks."""

import logging
from pathlib import Path

import pytest

from notewriter.artifacts.traces import Generation
from notewriter.ground.records import Completion, Sampling
from notewriter.rollouts.replies import count_replies, in_words, tell_of_replies


def step(text: str = "Mira", finish_reason: str = "stop", tokens: int = 12, **fields) -> Generation:
    sampling = Sampling(max_tokens=12, continues=fields.pop("continues", False), raw=fields.pop("raw", False))
    completion = Completion(text, finish_reason, 5, tokens, 0, 0.5)
    messages = [{"role": "user", "content": "Between <note> and </note>"}]
    return Generation(fields.get("stage", "m/answer"), fields.get("role", "policy"), messages, sampling, completion)


def told(steps: list[Generation], caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING):
        tell_of_replies(count_replies(steps), Path("run"))
    return [record.getMessage() for record in caplog.records]


def test_replies_that_were_cut_are_counted_by_stage():
    steps = [step(), step(finish_reason="length"), step(finish_reason="length", tokens=3), step(stage="m/note")]
    cut = count_replies(steps).cut
    assert cut == {
        "m/answer": {"replies": 3, "cut": 2, "at_context_end": 1},
        "m/note": {"replies": 1, "cut": 0, "at_context_end": 0},
    }
    assert in_words(cut) == "m/answer 2 of 3"


def test_more_than_a_twentieth_of_cut_replies_is_warned_of_with_the_remedy(caplog):
    assert told([step(finish_reason="length"), *[step()] * 19], caplog) == []
    (line,) = told([step(finish_reason="length"), *[step()] * 18], caplog)
    assert line.startswith("run: replies were cut and are used as they are: m/answer 1 of 19; raise their limit")
    assert "--max_tokens" in line and "context" not in line


def test_replies_that_the_context_had_no_room_for_have_a_remedy_of_their_own(caplog):
    (line,) = told([step(finish_reason="length", tokens=5)] * 2, caplog)
    assert (
        "2 of them were cut before this limit, at the end of the model's context: give the model a longer context "
        "(max_model_len" in line
    )


@pytest.mark.parametrize(("others", "warned"), [(8, True), (18, True), (19, False)])
def test_a_tenth_of_a_roles_replies_that_begin_alike_with_an_unknown_mark_is_warned_of(caplog, others, warned):
    lines = told([step("<pad>Who?")] * 2 + [step("<note>Mira")] * others, caplog)
    assert len(lines) == warned
    if warned:
        assert f"2 of {others + 2} replies of policy begin with '<pad>', which no prompt asks for" in lines[0]


def test_a_mark_that_came_once_is_no_kind_of_reply_and_continued_texts_have_marks_of_their_own(caplog):
    assert told([step("<pad>Who?")], caplog) == []
    assert told([step("<search>Who?", continues=True)] * 9 + [step("<search>Who?", raw=True)] * 9, caplog) == []
