"""`likelihood`: how much likelier the gold answer is with a note."""

from dataclasses import replace

import pytest
from judge_cases import QUESTION

from notewriter.data.judges import likelihood
from notewriter.data.judges.case import NOTHING
from notewriter.ground.records import Completion
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources


class Reader:
    """Finds an answer that its prompt contains likely, and any other one not."""

    def __init__(self):
        self.asked = []

    async def complete(self, messages, sampling, **_):
        prompt, answer = (messages[place]["content"] for place in (0, -1))
        self.asked.append((sampling.temperature, sampling.score_from is not None))
        return Completion("", "length", 9, 1, 0, 0.0, [(answer, -0.5 if answer in prompt else -4.0)])


@pytest.fixture
def reader():
    return Resources({"answer": Reader(), "policy": None}, Prompts())


async def test_the_note_that_makes_the_answer_likelier_within_its_words_is_chosen(make_case, reader):
    notes = ["Mira was born in Tolen.", "Mira was born in the north of the country, in Tolen."]
    case, _ = make_case(notes, reader=reader, note_words=6)
    verdict = await likelihood(case)
    assert verdict.scores == [3.5, 0] and (verdict.chosen, verdict.rejected) == (0, 1)
    assert reader.clients["answer"].asked == [(0.1, True)] * 4
    case, _ = make_case(notes, reader=reader, note_words=None)
    assert (await likelihood(case)).reason == "candidates too much alike"


async def test_a_note_that_gains_nothing_is_not_chosen(make_case, reader):
    case, _ = make_case(["The Bore is a river.", "No idea."], reader=reader)
    verdict = await likelihood(case)
    assert verdict.alike and verdict.reason == NOTHING


@pytest.mark.parametrize("answers", [("Yes",), ()])
async def test_a_yes_or_no_is_no_answer_to_be_likelier(make_case, reader, answers):
    case, _ = make_case(["Yes.", "No."], reader=reader, question=replace(QUESTION, answers=answers))
    verdict = await likelihood(case)
    assert verdict.alike and verdict.rejected is None and reader.clients["answer"].asked == []
