import pytest

from notewriter.data.dataset.selection import clean_selection
from notewriter.data.options import SelectionArguments
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError


@pytest.fixture
def arguments(tmp_path):
    """Options that lead to a file of four questions, the third of which repeats the first."""
    path = tmp_path / "questions.jsonl"
    texts = ["Who founded Tolen?", "Where does the river Osk rise?", "Who founded Tolen?", "When was Mira born?"]
    records = ({"id": f"q{number}", "question": text, "answers": ["x"]} for number, text in enumerate(texts))
    jsonl.write(path, records)

    def make(**changes):
        return SelectionArguments(dataset="jsonl", path=str(path), output_dir="runs/a", **changes)

    return make


def test_questions_that_may_not_be_trained_on_are_set_apart_with_what_they_meet(arguments, tmp_path):
    evaluation = tmp_path / "evaluation.jsonl"
    jsonl.write(evaluation, [{"id": "e", "question": "When was Mira born?", "answers": ["x"]}])
    _, selection = clean_selection(arguments(eval_files={str(evaluation): "jsonl"}))
    assert [question.id for question in selection.questions] == ["q0", "q1"]
    assert [(drop.question.id, drop.other_id) for drop in selection.drops] == [("q2", "q0"), ("q3", "e")]
    assert [seen.question.id for seen in selection.evaluation] == ["e"]


def test_a_share_of_the_questions_is_for_dev(arguments):
    _, selection = clean_selection(arguments(dev_share=0.4))
    assert [question.id for question in selection.questions] == ["q0", "q1", "q3"]
    assert len(selection.dev) == 1 and clean_selection(arguments(dev_share=0.4))[1].dev == selection.dev


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_out_of_its_range_is_named(arguments, share):
    with pytest.raises(UserError, match=r"dev_share: .* give at least 0 and below 1"):
        clean_selection(arguments(dev_share=share))
