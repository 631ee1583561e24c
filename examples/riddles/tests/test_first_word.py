import pytest
from riddles.first_word import score

from notewriter import Question


@pytest.mark.parametrize(("prediction", "value"), [("Comb!", 1.0), ("the comb, surely", 1.0), ("a hair comb", 0.0)])
def test_the_first_word_counts(prediction, value):
    assert score(prediction, Question("q", "What has teeth and cannot bite?", ("a comb",))) == {"first_word": value}
