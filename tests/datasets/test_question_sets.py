"""Question sets: the questions that a paper used, as ids or as its rule."""

import hashlib
import random
from pathlib import Path

import pytest
from benchmark_files import write_lines

from notewriter.datasets import BENCHMARKS, load_questions
from notewriter.datasets.question_sets import with_question_set
from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question

SETS = Path(__file__).parents[2] / "configs/question_sets"
SHARED = Path(__file__).parents[2] / "../shared/data"


def questions(number: int) -> list[Question]:
    return [Question(f"q{place}", f"Who {place}?", ("x",)) for place in range(number)]


def ids(found: list[Question]) -> list[str]:
    return [question.id for question in found]


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_a_set_of_ids_has_its_own_order_and_comments(write):
    path = write("set.txt", "# The 3 questions of a paper.\nq7\n\nq2\n  q5\n")
    assert ids(with_question_set(questions(10), path, "dev.json")) == ["q7", "q2", "q5"]


@pytest.mark.parametrize("key", ["question_id", "_id", "id"])
def test_a_released_file_of_questions_is_a_set(tmp_path, key):
    """IRCoT's test_subsampled.jsonl has `question_id`."""
    path = write_lines(tmp_path / "test_subsampled.jsonl", {key: "q3", "question_text": "Who 3?"}, {key: "q1"})
    assert ids(with_question_set(questions(10), path, "dev.json")) == ["q3", "q1"]


def test_the_ids_of_a_set_may_be_numbers_as_in_popqas_rows(tmp_path):
    path = write_lines(tmp_path / "set.jsonl", {"id": 4222362, "question": "Who?"})
    found = with_question_set([Question("4222362", "Who?", ("x",))], path, "dev.parquet")
    assert ids(found) == ["4222362"]


def test_missing_questions_are_counted_and_the_first_named_with_the_file_that_was_read(write):
    path = write("set.txt", "".join(f"q{number}\n" for number in range(8, 20)))
    with pytest.raises(UserError) as error:
        with_question_set(questions(10), path, "data/train.json")
    assert str(error.value) == (
        f"{path}: 10 of its 12 questions are not in data/train.json: 'q10', 'q11', 'q12', 'q13', 'q14', ...; "
        "use the file that the set was made from"
    )


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("set.txt", "# none\n", "names no questions"),
        ("set.txt", "q1\nq2\nq1\n", r"set\.txt:3: names 'q1', which .*set\.txt:1 names already"),
        ("set.jsonl", '{"title": "q1"}\n', r"set\.jsonl:1: has no 'id'"),
        ("set.yaml", "first: 1\ndraw: {sample: 1, seed: 0}\n", "must have either first or draw"),
        ("set.yaml", "questions: 10\n", "must have either first or draw"),
        ("set.yaml", "frist: 1\n", "unknown key 'frist'; known are: questions, first"),
        ("set.yaml", "draw: {sample: 1}\n", "draw has no 'seed'|draw: has no 'seed'"),
        ("set.yaml", "first: 0\n", "first"),
        ("set.yaml", "- 1\n", "is not a mapping"),
        ("set.yaml", "a: [\n", "is not YAML"),
        ("set.yaml", "first: 11\n", r"takes 11 questions, and dev\.json has 10"),
    ],
)
def test_what_is_wrong_with_a_set_is_named(write, name, text, problem):
    with pytest.raises(UserError, match=problem):
        with_question_set(questions(10), write(name, text), "dev.json")


def test_a_set_that_is_absent_is_named(tmp_path):
    with pytest.raises(UserError, match=r"absent\.txt: cannot be read"):
        with_question_set(questions(1), tmp_path / "absent.txt", "dev.json")


def test_a_rule_holds_for_the_whole_file_alone(write):
    path = write("set.yaml", "questions: 7405\nfirst: 1000\n")
    with pytest.raises(
        UserError, match=r"is a rule for a file of 7,405 questions, and dev\.json has 100; use the whole"
    ):
        with_question_set(questions(100), path, "dev.json")


def test_the_rule_of_ircot_is_its_script():
    """processing_scripts/subsample_dataset_and_remap_paras.py, run for dev and then, in a new process, for test."""
    whole = questions(7405)
    random.seed(13370)
    dev = random.sample(whole, 100)
    kept = {question.id for question in dev}
    random.seed(13370)
    test = random.sample([question for question in whole if question.id not in kept], 500)
    assert with_question_set(whole, SETS / "hotpotqa/ircot_test.yaml", "dev.json") == test
    # Places of the development questions in HotpotQA's file, compared with a run of IRCoT that was published.
    assert ids(dev[:8]) == ["q6297", "q2208", "q5874", "q5745", "q6148", "q6639", "q7161", "q6601"]


SIZES = {"ircot_test": 500, "resp": 1000, "noteswriting": 310, "noteswriting_ours": 500, "deepnote_ours": 500}
SIZES["deepnote_cost_ours"] = 50


@pytest.mark.parametrize("path", sorted(SETS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_sets_of_the_papers_have_their_size_and_say_where_they_are_from(path):
    assert path.parent.name in BENCHMARKS
    number = {"2wikimultihopqa": 12576, "musique": 2417, "fanoutqa": 310, "strategyqa": 2290}.get(
        path.parent.name, 7405
    )
    chosen = with_question_set(questions(number), path, "dev")
    size = SIZES.get(path.stem) or {"iirc": 200}.get(path.parent.name, 100)
    assert len(chosen) == len(set(ids(chosen))) == size
    header = path.read_text().partition("\n")[0]
    assert header.startswith("# ") and f"{size:,}" in header
    assert ("these are ours" in " ".join(path.read_text().split("\n# "))) == path.stem.endswith("_ours")


@pytest.mark.parametrize(
    ("dataset", "file"),
    [("hotpotqa", "train.json"), ("2wikimultihopqa", "train.json"), ("musique", "train.jsonl")],
)
def test_the_slices_beside_the_project_are_refused_since_they_are_a_part_of_other_splits(dataset, file):
    path = SHARED / dataset / file
    if not path.exists():
        pytest.skip(f"no {path}")
    with pytest.raises(
        UserError, match=rf"is a rule for a file of [\d,]+ questions, and .*{file} has \d+; use the whole"
    ):
        with_question_set(load_questions(dataset, path), SETS / dataset / "ircot_test.yaml", path)


def test_a_command_takes_a_set_before_the_limit_counts(tmp_path, write):
    path = write_lines(
        tmp_path / "q.jsonl", *({"id": f"q{place}", "question": "Who?", "answers": ["x"]} for place in range(6))
    )
    chosen = write("set.txt", "q4\nq1\nq3\n")
    arguments = QuestionArguments(dataset="jsonl", path=str(path), output_dir="runs/a", question_set=str(chosen))
    assert ids(load_selected(arguments)[1]) == ["q4", "q1", "q3"]
    arguments.limit, arguments.seed = 2, None
    assert ids(load_selected(arguments)[1]) == ["q4", "q1"]
    arguments.ids = str(chosen)
    with pytest.raises(UserError, match="ids and question_set are both given"):
        load_selected(arguments)


def test_a_rule_with_a_hash_chooses_those_questions_and_no_others(write):
    digest = hashlib.sha256(b"q0\nq1\n").hexdigest()
    path = write("set.yaml", f"first: 2\nsha256: {digest}\n")
    assert ids(with_question_set(questions(5), path, "dev.json")) == ["q0", "q1"]
    with pytest.raises(UserError, match=r"set\.yaml: chooses questions of another sha256; use the file"):
        with_question_set(questions(5)[1:], path, "dev.json")
