import pytest

from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError


@pytest.fixture
def arguments(tmp_path):
    """Options for a file of ten questions, with changes."""
    path = tmp_path / "questions.jsonl"
    jsonl.write(path, ({"id": f"q{number}", "question": f"Who {number}?", "answers": ["x"]} for number in range(10)))

    def make(**changes):
        return QuestionArguments(dataset="jsonl", path=str(path), output_dir="runs/a", **changes)

    return make


def ids(arguments):
    return [question.id for question in load_selected(arguments)[1]]


def test_a_limit_draws_with_the_seed_and_without_one_takes_the_first_of_the_file(arguments):
    assert ids(arguments(limit=3, seed=None)) == ["q0", "q1", "q2"]
    drawn = ids(arguments(limit=3))
    assert drawn == ids(arguments(limit=3)) == sorted(drawn) and len(drawn) == 3
    assert any(ids(arguments(limit=3, seed=seed)) != drawn for seed in range(1, 5))


@pytest.mark.parametrize("limit", [10, 15000])
def test_a_limit_that_leaves_nothing_out_is_the_same_setting_as_none(arguments, limit):
    limited, unlimited = arguments(limit=limit), arguments()
    assert ids(limited) == ids(unlimited) == [f"q{number}" for number in range(10)]
    assert load_selected(limited) == load_selected(unlimited)


def test_ids_are_taken_before_the_limit_counts(arguments, tmp_path):
    (tmp_path / "ids.txt").write_text("q7\nq2\nq5\n")
    some = arguments(ids=str(tmp_path / "ids.txt"), limit=2, seed=None)
    assert ids(some) == ["q2", "q5"] and load_selected(some)[0].limit == 2
    all_of_them = arguments(ids=str(tmp_path / "ids.txt"), limit=3)
    assert ids(all_of_them) == ["q2", "q5", "q7"] and load_selected(all_of_them)[0].limit is None


def test_ids_are_a_question_set_whose_questions_stay_in_the_order_of_their_file(arguments, tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("# two of ten\nq7\n\nq2\n")
    assert ids(arguments(ids=str(path))) == ["q2", "q7"] and ids(arguments(question_set=str(path))) == ["q7", "q2"]
    (tmp_path / "rule.yaml").write_text("draw: {sample: 4, seed: 1}\n")
    assert ids(arguments(ids=str(tmp_path / "rule.yaml"))) == sorted(
        ids(arguments(question_set=str(tmp_path / "rule.yaml")))
    )


@pytest.mark.parametrize("option", ["ids", "question_set"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("q3\nq99\n", r"ids\.txt: 1 of its 2 questions are not in .*questions\.jsonl: 'q99'; use the file"),
        ("q3\nq1\nq3\n", r"ids\.txt:3: names 'q3', which .*ids\.txt:1 names already; remove one"),
        ("\n", r"ids\.txt: names no questions; write one id per line"),
    ],
)
def test_what_is_wrong_with_ids_is_named_as_with_a_set(arguments, tmp_path, option, text, problem):
    (tmp_path / "ids.txt").write_text(text)
    with pytest.raises(UserError, match=problem):
        load_selected(arguments(**{option: str(tmp_path / "ids.txt")}))


def test_metadata_are_looked_at_before_the_limit_counts(arguments, tmp_path):
    records = [
        {"id": f"q{number}", "question": f"Who {number}?", "answers": ["x"], "metadata": {"type": "ab"[number % 2]}}
        for number in range(4)
    ]
    jsonl.write(tmp_path / "questions.jsonl", records)
    assert ids(arguments(where={"type": "b"}, limit=1, seed=None)) == ["q1"]
    assert ids(arguments(where={"type": "b"})) == ["q1", "q3"]


def test_a_limit_below_one_is_named(arguments):
    with pytest.raises(UserError, match="limit: 0 questions"):
        load_selected(arguments(limit=0))
