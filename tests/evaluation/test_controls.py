"""Notes without a model beside the notes of a real evaluation."""

import json
from statistics import mean

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import run_config

from notewriter.artifacts.metrics import Interval, read_metrics
from notewriter.artifacts.predictions import read_predictions
from notewriter.evaluation import evaluate
from notewriter.evaluation.controls import (
    CONTENDERS,
    SHOWN,
    Reading,
    constant_scores,
    control_notes,
    control_scores,
    readings,
)
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.results import compare_runs as compare
from notewriter.results.compare import Paired
from notewriter.results.report import write_report
from notewriter.results.runs import Run
from notewriter.results.tables import beside_table
from notewriter.results.without_a_model import against_constants, against_controls, corrected_scores, highest_control


def test_controls_are_made_of_the_passages_of_the_run_at_the_words_of_its_notes(noted_runs):
    folder, _ = noted_runs
    scores = control_scores(folder / "after")
    assert tuple(scores) == SHOWN
    for control in scores.values():
        assert control.keys() == read_predictions(folder / "after/predictions.jsonl").keys()
    # There may be less evidence than that.
    assert all(each["note_words"] <= 12 for each in scores["gold"].values())
    assert {each["note_words"] for each in scores["other"].values()} == {12.0}
    for name in CONTENDERS:
        assert {each["note_words"] for each in scores[name].values()} == {12.0}
        assert mean(each["note_fact_recall"] for each in scores[name].values()) > 0.1
    assert {each["note_fact_recall"] for each in scores["other"].values()} == {0.0}
    best = highest_control(scores, "note_fact_recall")
    means = {name: mean(each["note_fact_recall"] for each in scores[name].values()) for name in CONTENDERS}
    assert means[best] == max(means.values())


def test_a_control_may_have_a_budget_of_its_own(noted_runs):
    folder, _ = noted_runs
    read = readings(folder / "after")
    short, long = (control_notes(read, ["lead"], words)["lead"] for words in (5, 60))
    assert {len(note.split()) for note in short.values()} == {5}
    assert all(long[id].startswith(note) for id, note in short.items())


def test_controls_read_the_sentences_in_the_order_in_which_the_run_found_them(noted_runs, tmp_path):
    folder, world = noted_runs
    run = copied(folder / "after", tmp_path)
    config = (run / "config.yaml").read_text()
    parts = json.dumps([{"index": world["index"]}, {"shuffle": "sentences", "seed": 3}])
    (run / "config.yaml").write_text(config.replace("retriever: null", f"retriever: {parts}"))
    plain, shuffled = (readings(each) for each in (folder / "after", run))
    assert [sorted(p.text.split()) for p in plain[0].passages] == [sorted(p.text.split()) for p in shuffled[0].passages]
    assert [p.text for p in plain[0].passages] != [p.text for p in shuffled[0].passages]


def test_the_note_of_another_question_is_as_long(noted_runs):
    folder, _ = noted_runs
    read = [
        Reading(each.question, each.passages, note)
        for each, note in zip(readings(folder / "after"), ["a b c", "d", "e f", "", "g h i", "j k"], strict=True)
    ]
    assert list(control_notes(read, ["other"])["other"].values()) == ["g h i", "e", "g h", "", "a b c", "a b"]
    assert list(control_notes(read[:1], ["other"])["other"].values()) == [""]


def test_constant_answers_are_scored_where_a_third_of_the_questions_is_yes_or_no(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0, "b": 1.0, "c": 0.0}, family="hotpotqa", prediction="no")
    assert against_constants([Run(run)]) == {}
    golds = [["No"], ["yes"], ["Fulda"]]
    records = [record for _, record in jsonl.read(run / "predictions.jsonl")]
    jsonl.write(
        run / "predictions.jsonl",
        [record | {"answers": gold} for record, gold in zip(records, golds, strict=True)],
    )
    scores = constant_scores(read_predictions(run / "predictions.jsonl").values(), "hotpotqa")
    assert list(scores) == ["no"]
    assert [each["em"] for each in scores["no"].values()] == [1.0, 0.0, 0.0]
    ((answer, comparison),) = against_constants([Run(run)]).items()
    assert (answer, comparison["f1"].before, comparison["f1"].after) == ("no", 1 / 3, 1 / 3)


def test_controls_are_the_before_side_of_a_comparison_at_equal_words(noted_runs):
    folder, _ = noted_runs
    against = against_controls([Run(folder / "after"), Run(folder / "after")])
    for name in CONTENDERS:
        facts, words = against[name]["note_fact_recall"], against[name]["note_words"]
        assert facts.before > 0.1 > facts.after
        assert facts.difference.mean == pytest.approx(facts.after - facts.before)
        assert facts.deviations == (0.0, 0.0)
        assert words.before == words.after == 12.0


def test_p_values_beside_controls_are_corrected_for_those_that_are_shown():
    def paired(p_value):
        return Paired(0.2, 0.5, (None, None), Interval(0.3, 0.1, 0.5), p_value, 24)

    # Neither direction of a number of words is better, so it has no p.
    against = {"lead": {"note_fact_recall": paired(0.01), "note_has_answer": paired(0.02), "note_words": paired(0.001)}}
    shown = corrected_scores(against)["lead"]
    assert (shown["note_fact_recall"].p_value, shown["note_has_answer"].p_value) == (0.02, 0.02)
    _, header, (row,) = beside_table("", corrected_scores(against), "after")
    assert [row[place] for place, name in enumerate(header) if name == "p"] == ["0.020", "0.020"]
    assert row[header.index("note_words")] == "0.2"


def test_the_command_prints_a_row_for_each_note_without_a_model(noted_runs, capsys):
    folder, _ = noted_runs
    compare.main(["--before", str(folder / "before"), "--after", str(folder / "after")])
    _, below = capsys.readouterr().out.split("Notes without a model, at as many words as those of the run after:\n\n")
    header, _, *lines = below.splitlines()
    names = [line.split("|")[1].strip() for line in lines[: len(SHOWN)]]
    assert names == [*SHOWN]
    assert [cell.strip() for cell in header.split("|")][2:6] == [
        "note_fact_recall",
        "after minus it [95% interval]",
        "p",
        "note_has_answer",
    ]
    assert all(line.split("|")[8].strip() == "12.0" for line in lines[: len(CONTENDERS)])
    assert "overlap: the sentences that share most words with the question; " in below


def test_evaluate_scores_controls_with_a_run(noted_runs, tmp_path, capsys):
    _, world = noted_runs
    with fake_endpoint(lambda request: "nobody") as endpoint:
        evaluate.main([*run_config(tmp_path, "run", world, endpoint, {}), "--controls"])
    assert "without a model: lead      note_fact_recall 0." in capsys.readouterr().out
    assert tuple(read_metrics(tmp_path / "run/metrics.json").controls) == SHOWN


def test_evaluate_scores_controls_of_a_finished_run_and_report_shows_them_as_a_band(noted_runs, tmp_path, capsys):
    folder, _ = noted_runs
    evaluate.main([*settings_of(folder / "after"), "--controls"])
    assert "without a model: lead      note_fact_recall 0." in capsys.readouterr().out
    controls = read_metrics(folder / "after/metrics.json").controls
    assert tuple(controls) == SHOWN
    page = tmp_path / "report.html"
    sections = {each.id: each.parts for each in write_report([folder / "before", folder / "after"], page)}
    rows = [row for row in sections["scores"][0][2] if row[0] == "without a model"]
    means = [controls[name]["note_fact_recall"].mean for name in CONTENDERS]
    gold = controls["gold"]["note_fact_recall"].mean
    assert rows[0] == ["without a model", "", f"{min(means):.3f} to {max(means):.3f}; gold {gold:.3f}"]
    caption, _, beside = sections["without"][-1]
    assert caption == "after beside notes without a model"
    assert [row[0] for row in beside] == [*SHOWN]
    assert "Without a model" in page.read_text()


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
    assert control_scores(run) == against_controls([Run(run)]) == against_controls([]) == {}
    compare.main(["--before", str(run), "--after", str(run)])
    assert "ithout a model" not in capsys.readouterr().out


def test_a_question_that_ended_in_an_error_has_a_control_of_no_words(noted_runs, tmp_path):
    folder, _ = noted_runs
    run = copied(folder / "after", tmp_path)
    records = [record for _, record in jsonl.read(run / "predictions.jsonl")]
    records[0]["scores"] = dict.fromkeys(records[0]["scores"], 0.0)
    jsonl.write(run / "predictions.jsonl", records)
    scores = control_scores(run)["lead"][records[0]["question_id"]]
    assert set(scores.values()) == {0.0}


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


def settings_of(run):
    return ["--config", str(run) + ".yaml"]


def test_notes_are_read_as_they_were_written(noted_runs, tmp_path):
    """Sentences end with lines, and lines of a table are no words of a note, but stand in it."""
    folder, _ = noted_runs
    run = copied(folder / "after", tmp_path)
    records = [record for _, record in jsonl.read(run / "predictions.jsonl")]
    note = "It may be:\n\n| a | b |\n|---|---|\n| c | d |"
    records[0] |= {"note": note, "scores": records[0]["scores"] | {"note_words": 7.0}}
    jsonl.write(run / "predictions.jsonl", records)
    assert [each.note for each in readings(run) if each.question.id == records[0]["question_id"]] == [note]
