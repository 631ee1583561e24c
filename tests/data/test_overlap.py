"""`notewriter overlap`: training data against evaluation questions."""

import json

import pytest
import yaml
from fake_endpoint import fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.data import build_gold, build_pairs, overlap
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

QUESTIONS = 6


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture(scope="module")
def data(world, tmp_path_factory):
    """A folder of pairs and one of gold evidence over the same questions."""
    folder = tmp_path_factory.mktemp("data")
    gold = {"gold_stages": ["deepnote/init_note"], "dev_share": 0.3}
    with fake_endpoint() as endpoint:
        build_pairs.main(run_config(folder, "pairs", world, endpoint, DEEPNOTE_PAIRS))
        build_gold.main(run_config(folder, "gold", world, endpoint, gold))
    return [str(folder / "pairs"), str(folder / "gold")]


@pytest.fixture
def evaluation(tmp_path):
    """Write questions into an evaluation file; returns the value of eval_files."""

    def write(records, name="evaluation.jsonl"):
        jsonl.write(tmp_path / name, records)
        return json.dumps({str(tmp_path / name): "jsonl"})

    return write


OTHER = {"id": "e1", "question": "Which sea does the river Osk reach?", "answers": ["none"]}


def test_data_without_overlap_passes_and_the_card_tells_so(data, evaluation, capsys):
    overlap.main(["--data", *data, "--eval_files", evaluation([OTHER])])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for folder, line in zip(data, lines, strict=True):
        assert line.startswith(f"{folder}: none of {QUESTIONS} questions overlap with the 1 of ")
        with open(f"{folder}/README.md") as card:
            told = f"- Checked against evaluation.jsonl (1 questions): none of {QUESTIONS} questions overlaps."
            assert told in card.read()


def test_a_leaked_question_is_an_error_that_names_it(data, world, evaluation, capsys):
    (_, leaked), *_ = jsonl.read(world["path"])
    shouted = leaked | {"id": "e2", "question": leaked["question"].upper()}
    with pytest.raises(UserError, match=r"overlapping_questions\.jsonl: 2 training questions overlap with evaluation"):
        overlap.main(["--data", *data, "--eval_files", evaluation([OTHER, shouted], "leaky.jsonl")])
    assert f"1 of {QUESTIONS} questions overlap with the 2 of" in capsys.readouterr().out
    for folder in data:
        ((_, named),) = jsonl.read(f"{folder}/overlapping_questions.jsonl")
        assert (named["question_id"], named["other_id"]) == (leaked["id"], "e2")
        with open(f"{folder}/stats.json") as file:
            found = json.load(file)["overlap"]
        (check,) = [check for name, check in found.items() if name.endswith("leaky.jsonl")]
        assert check["overlapping"] == {"the question is in an evaluation file": 1}


def test_checks_stay_while_the_rows_do(world, evaluation, tmp_path, caplog):
    with fake_endpoint() as endpoint:
        argv = run_config(tmp_path, "pairs", world, endpoint, DEEPNOTE_PAIRS)
        build_pairs.main(argv)
        folder = tmp_path / "pairs"
        (_, leaked), *_ = jsonl.read(world["path"])
        with pytest.raises(UserError, match="overlap with evaluation"):
            overlap.main(["--data", str(folder), "--eval_files", evaluation([leaked | {"id": "e2"}], "leaky.jsonl")])
        overlap.main(["--data", str(folder), "--eval_files", evaluation([OTHER])])
        # A later check does not hide what an earlier one has found.
        assert [record["other_id"] for _, record in jsonl.read(folder / "overlapping_questions.jsonl")] == ["e2"]
        assert "overlap" in json.loads((folder / "stats.json").read_text())

        build_pairs.main(argv)
    assert "overlap" not in json.loads((folder / "stats.json").read_text())
    assert not (folder / "overlapping_questions.jsonl").exists()


def test_a_run_is_compared_by_the_questions_that_it_used(data, world, tmp_path, capsys):
    ids = [record["id"] for _, record in jsonl.read(world["path"])]
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "ids.txt").write_text(ids[0])
    config = {"dataset": "jsonl", "path": world["path"], "ids": str(tmp_path / "ids.txt"), "seed": 0}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(UserError, match="2 training questions overlap"):
        overlap.main(["--data", *data, "--runs", str(run)])
    assert f"1 of {QUESTIONS} questions overlap with the 1 of {run}" in capsys.readouterr().out


def test_a_run_that_is_named_twice_counts_once(world, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"dataset": "jsonl", "path": world["path"], "seed": 0}))
    assert len(overlap.load_runs([tmp_path, tmp_path])) == QUESTIONS


def test_mistakes_are_told(data, tmp_path, evaluation):
    with pytest.raises(UserError, match="nothing to compare with"):
        overlap.main(["--data", *data])
    with pytest.raises(UserError, match=r"stats\.json"):
        overlap.main(["--data", str(tmp_path), "--eval_files", evaluation([OTHER])])
