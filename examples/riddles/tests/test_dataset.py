import json

import pytest
from riddles.dataset import BENCHMARK

from notewriter.ground.errors import UserError

RIDDLE = {"riddle": "What has teeth?", "solution": "A comb", "source": "A comb has teeth and cannot bite."}


@pytest.fixture
def write(tmp_path):
    def write(*riddles):
        path = tmp_path / "riddles.jsonl"
        path.write_text("".join(json.dumps(riddle) + "\n" for riddle in riddles))
        return path

    return write


def test_a_riddle_is_a_question_and_its_source_a_passage(write):
    path = write(RIDDLE)
    (question,) = BENCHMARK.load_questions(path)
    assert (question.question, question.answers) == ("What has teeth?", ("A comb",))
    assert [passage.text for passage in BENCHMARK.load_corpus(path)] == [RIDDLE["source"]]


def test_a_riddle_without_a_solution_is_an_error_with_its_line(write):
    with pytest.raises(UserError, match=r"riddles.jsonl:2: .*solution"):
        BENCHMARK.load_questions(write(RIDDLE, {"riddle": "What runs?", "source": ""}))
