import pytest
from riddles.first_word import FAMILY, score_answer

from notewriter import Question


@pytest.mark.parametrize(
    ("prediction", "value", "words"), [("Comb!", 1.0, 1), ("the comb, surely", 1.0, 3), ("a hair comb", 0.0, 3)]
)
def test_the_first_word_counts(prediction, value, words):
    scores = score_answer(prediction, Question("q", "What has teeth and cannot bite?", ("a comb",)))
    assert (scores["first_word"], scores["answer_words"]) == (value, words)
    assert scores.keys() == {metric.name for metric in FAMILY.metrics}
