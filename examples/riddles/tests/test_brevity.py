import asyncio

from riddles.brevity import brevity

from notewriter import Question
from notewriter.testing import case_of


def test_the_shortest_note_with_the_answer_is_the_best():
    notes = ["A comb has teeth and cannot bite, they say.", "A comb.", "Water runs and has no legs."]
    verdict = asyncio.run(brevity(case_of(notes, Question("q", "What has teeth and cannot bite?", ("A comb",)))))
    assert (verdict.chosen, verdict.rejected) == (1, 2)
