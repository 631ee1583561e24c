"""Notes without a model beside the notes of a real evaluation."""

import json

import pytest

from notewriter.artifacts.predictions import read_predictions
from notewriter.evaluation import compare
from notewriter.evaluation.comparing import against_controls
from notewriter.evaluation.controls import control_scores
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError


def test_controls_are_made_of_the_passages_of_the_run_at_the_words_of_its_notes(noted_runs):
    folder, _ = noted_runs
    scores = control_scores(folder / "after")
    assert list(scores) == ["overlap", "lead"]
    for control in scores.values():
        assert control.keys() == read_predictions(folder / "after/predictions.jsonl").keys()
        assert {each["note_words"] for each in control.values()} == {12.0}
        assert all(each["note_fact_recall"] > 0.1 for each in control.values())


def test_controls_are_the_before_side_of_a_comparison_at_equal_words(noted_runs):
    folder, _ = noted_runs
    for against in against_controls([folder / "after", folder / "after"]).values():
        facts, words = against["note_fact_recall"], against["note_words"]
        assert facts.before > 0.1 > facts.after
        assert facts.difference.mean == pytest.approx(facts.after - facts.before)
        assert facts.deviations == (0.0, 0.0)
        assert words.before == words.after == 12.0


def test_the_command_prints_the_notes_without_a_model_beside_the_run_after(noted_runs, capsys):
    folder, _ = noted_runs
    compare.main(["--before", str(folder / "before"), "--after", str(folder / "after")])
    _, first, second = capsys.readouterr().out.split("| metric ")[0:3]
    assert "share most words with the question, at the same number of words" in first
    header, _, facts, answer, words, *_ = second.splitlines()
    assert header.split("|")[1].strip() == "overlap"
    for line, metric in ((facts, "note_fact_recall"), (answer, "note_has_answer"), (words, "note_words")):
        assert line.startswith(f"| {metric} ")
    assert "| 12.0 | 12.0 |" in " ".join(words.split())


def test_the_p_values_of_the_runs_do_not_depend_on_notes_without_a_model(noted_runs, tmp_path, capsys):
    folder, world = noted_runs
    run = copied(folder / "after", tmp_path)
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace(world["index"], "runs/removed"))
    tables = []
    for after in (folder / "after", run):
        compare.main(["--before", str(folder / "before"), "--after", str(after)])
        tables.append(capsys.readouterr().out.split("\n\n")[0])
    assert tables[0] == tables[1]


def test_a_run_without_notes_has_no_controls(write_run, tmp_path, capsys):
    run = write_run(tmp_path / "run", {"a": 0.0})
    assert control_scores(run) == against_controls([run]) == against_controls([]) == {}
    compare.main(["--before", str(run), "--after", str(run)])
    assert "ithout a model" not in capsys.readouterr().out


def test_a_question_that_ended_in_an_error_has_a_control_of_no_words(noted_runs, tmp_path):
    folder, _ = noted_runs
    run = copied(folder / "after", tmp_path)
    records = [record for _, record in jsonl.read(run / "predictions.jsonl")]
    records[0]["scores"] = dict.fromkeys(records[0]["scores"], 0.0)
    jsonl.write(run / "predictions.jsonl", records)
    scores = control_scores(run)["lead"][records[0]["question_id"]]
    assert scores == {"note_fact_recall": 0.0, "note_has_answer": 0.0, "note_words": 0.0}


@pytest.mark.parametrize("what", ["the questions", "the index", "one question"])
def test_where_the_questions_or_passages_are_no_longer_those_of_the_run_the_reason_stands_in_place_of_the_rows(
    noted_runs, tmp_path, capsys, what
):
    folder, world = noted_runs
    run = copied(folder / "after", tmp_path)
    config = (run / "config.yaml").read_text()
    changed = tmp_path / "questions.jsonl"
    if what == "one question":
        jsonl.write(changed, [record | {"question": "Who?"} for _, record in jsonl.read(world["path"])])
    moved = world["index" if what == "the index" else "path"]
    (run / "config.yaml").write_text(config.replace(moved, str(changed)))
    with pytest.raises(UserError, match=r"questions\.jsonl"):
        control_scores(run)
    compare.main(["--before", str(folder / "before"), "--after", str(run)])
    printed = capsys.readouterr().out
    assert "| note_fact_recall " in printed
    assert "Without a model: not shown." in printed
    assert "questions.jsonl" in printed


def copied(run, folder):
    target = folder / "copied"
    target.mkdir()
    for name in ("predictions.jsonl", "traces.jsonl", "config.yaml", "metrics.json", "run.json"):
        (target / name).write_bytes((run / name).read_bytes())
    assert json.loads((target / "metrics.json").read_text())["questions"] == 6
    return target
