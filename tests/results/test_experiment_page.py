"""An experiment's page from hand-made run folders: every number on it can be computed by hand."""

import json
import shutil
import textwrap
from dataclasses import replace

import pytest
import yaml
from stats_file import write_stats

from notewriter.artifacts.run_record import Start, add_start
from notewriter.artifacts.training_record import TrainingRecord, write_training_record
from notewriter.evaluation.controls import CONTENDERS, SHOWN
from notewriter.ground import jsonl, plugins
from notewriter.ground.errors import UserError
from notewriter.results.table import main

OF_ONES_OWN = """
from notewriter.evaluation.metrics.metric import Family, Metric

FAMILY = Family(lambda prediction, question: {"shouted": 0.0}, (Metric("shouted", "Shouted", "In capitals."),))
"""

FILE = """
    output_dir: {folder}
    runs:
      - {{title: train, command: train --seed 1}}
    results:
      title: What training is worth
      text: A *made-up* experiment.
      sets: {{near: held out, far: elsewhere}}
      seeds: [1, 2]
      cells:
        base: "{{{{ output_dir }}}}/base/{{{{ set }}}}"
        trained: "{{{{ output_dir }}}}/trained-{{{{ seed }}}}/{{{{ set }}}}"
      metrics: [f1]
      compare: [[base, trained]]
    """


@pytest.fixture
def experiment(tmp_path):
    """Writes the pipeline file, with a change to its results."""

    def write(**changes):
        content = yaml.safe_load(textwrap.dedent(FILE.format(folder=tmp_path / "run")))
        content["results"] |= changes
        (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return tmp_path / "experiment.yaml"

    return write


@pytest.fixture
def runs(tmp_path, write_run):
    """The base on the first set is right on none of four questions; the seeds are right on two and on all."""
    folder = tmp_path / "run"
    names = "abcd"
    for cell, values in (("base", [0, 0, 0, 0]), ("trained-1", [1, 1, 0, 0]), ("trained-2", [1, 1, 1, 1])):
        (folder / cell).mkdir(parents=True)
        write_run(folder / cell / "near", dict(zip(names, map(float, values), strict=True)))
    data, model = folder / "pairs", folder / "model"
    for cell in ("trained-1", "trained-2"):
        (folder / cell / "near/config.yaml").write_text(yaml.safe_dump({"serve": str(model)}))
    for made, config in ((data, {}), (model, {"pairs": str(data), "model_name_or_path": "models/base"})):
        made.mkdir()
        (made / "config.yaml").write_text(yaml.safe_dump(config))
    metrics = {"train_runtime": 90.0, "num_tokens": 12345.0}
    write_training_record(model, TrainingRecord(steps=30, hyperparameters={"batch_size": 8}, metrics=metrics))
    overlap = {"questions": 100, "training_questions_dropped": 3, "evaluation_questions_met": 2}
    write_stats(
        data,
        tokens_in_all={"prompt_tokens": 7000, "completion_tokens": 800},
        hygiene={"questions_dropped": {}, "evaluation_files": {"dev.jsonl": overlap}},
    )
    return folder


def page(experiment, tmp_path, *options):
    main([str(experiment), "--output", str(tmp_path / "page.md"), *options])
    return (tmp_path / "page.md").read_text()


def test_scores_differences_and_seeds_are_those_of_the_runs(experiment, runs, tmp_path):
    text = page(experiment(), tmp_path)
    assert "# What training is worth\n" in text
    assert "3 of 6 evaluations are finished." in text
    # The mean of the seeds 0.5 and 1.0, whose standard deviation is 0.354; half of the questions are half right.
    assert "| base | 0.000 \\[0.000, 0.000\\] | not run |" in text
    assert "| trained | 0.750 ± 0.354 \\[0.500, 1.000\\] | not run |" in text
    assert "| trained, seed 1 | 0.500 | not run |" in text
    assert "| trained, seed 2 | 1.000 | not run |" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| base → trained")]
    _, near, far = [cell.strip() for cell in line.strip("|").split("|")]
    # Beside the questions the seeds vary, whose means are 0.5 and 1: the interval of the questions begins at 0.5.
    assert near.startswith("+0.750 \\[+0.250, ") and near.endswith("(2 x 4)") and "*" not in near
    assert far == "not run"


def test_a_cell_without_a_run_is_named_once_and_left_out_of_the_tables(experiment, runs, tmp_path):
    cells = yaml.safe_load(textwrap.dedent(FILE.format(folder=tmp_path / "run")))["results"]["cells"]
    missing = {"offline": "{{ output_dir }}/offline-{{ seed }}/{{ set }}"}
    text = page(experiment(cells=cells | missing, compare=[["base", "offline"], ["base", "trained"]]), tmp_path)
    assert "3 of 10 evaluations are finished. No evaluation of these cells is, and tables leave" in text
    assert text.count("offline") == 1 and "base → trained" in text
    assert "leave them out" not in page(experiment(), tmp_path)


def primary_rows(text):
    """The cells of each row of the primary tests."""
    section = text[text.index("## Primary tests") : text.index("## Scores")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "→" in line]


def test_tests_named_in_the_file_come_first_corrected_for_all_of_them(experiment, runs, tmp_path, write_run):
    for cell, values in (("base", [0.0] * 8), ("trained-1", [0.5] * 8), ("trained-2", [0.6] * 8)):
        write_run(runs / cell / "far", dict(zip("abcdefgh", values, strict=True)))
    text = page(experiment(primary=[{"metric": "f1", "compare": ["base", "trained"]}]), tmp_path)
    assert "Named in the file of the experiment, 2 in all; everything below is exploratory." in text
    near, far = primary_rows(text)
    assert near[0] == "f1: base → trained, held out" and far[0] == "f1: base → trained, elsewhere"
    assert far[1:4] == ["0.000", "0.550", "+0.550 \\[+0.500, +0.600\\] \\*"] and far[4] == "&lt;0.001"
    # With the seed as the unit: two means of 0.5 and 0.6, whose t interval is 0.55 ± 12.706 * 0.05.
    assert far[5:] == ["+0.550 \\[-0.085, +1.185\\]", "0.058", "2 x 8"]
    assert "\\*" not in text[text.index("## Differences") :]
    assert "With 2 seeds the first interval is too narrow where trainings differ much" in text
    assert "## Primary tests" not in page(experiment(), tmp_path)


def test_the_caution_is_of_the_seeds_that_ran(experiment, runs, tmp_path, write_run):
    changes = {"seeds": [1, 2, 3], "primary": [{"metric": "f1", "compare": ["base", "trained"]}]}
    of_one = "With one seed the first interval is about that training alone."
    text = page(experiment(**changes), tmp_path)
    assert "With 2 seeds the first interval is too narrow" in text and of_one not in text
    for cell in ("base", "trained-1"):
        write_run(runs / cell / "far", dict.fromkeys("abcd", 1.0))
    assert of_one in page(experiment(**changes), tmp_path)


def test_a_primary_test_that_has_not_run_is_one_of_those_that_are_corrected_for(experiment, runs, tmp_path):
    tests = [{"metric": "f1", "compare": ["base", "trained"], "sets": ["near"]}]
    alone = primary_rows(page(experiment(primary=tests), tmp_path))
    both = primary_rows(page(experiment(primary=[*tests, tests[0] | {"sets": ["far"]}]), tmp_path))
    assert both[1][1:4] == ["", "", "not run"]
    assert float(both[0][4]) == pytest.approx(2 * float(alone[0][4]), abs=0.002)


def test_the_best_control_is_chosen_on_a_set_of_its_own(experiment, runs, tmp_path, write_run):
    folder = tmp_path / "run"
    cells = {"trained": "{{ output_dir }}/trained-{{ seed }}/{{ set }}"}
    for name, chosen, tested in (("lead", 0.6, 0.1), ("first", 0.4, 0.3)):
        (folder / name).mkdir()
        write_run(folder / name / "choice", dict.fromkeys("xy", chosen))
        write_run(folder / name / "near", dict.fromkeys("abcd", tested))
        cells[name] = f"{{{{ output_dir }}}}/{name}/{{{{ set }}}}"
    changes = {
        "sets": {"choice": "questions to choose on", "near": "held out"},
        "cells": cells,
        "compare": [],
        "controls": ["lead", "first"],
        "chosen_on": "choice",
        "primary": [{"metric": "f1", "compare": ["best control", "trained"]}],
        "curves": {"trained": [[100, "trained"]]},
    }
    text = page(experiment(**changes), tmp_path)
    ((test, before, after, *_),) = primary_rows(text)
    assert (test, before, after) == ("f1: best control (lead) → trained, held out", "0.100", "0.750")
    assert "The best control in a score is the highest of lead, first on the set “questions to choose on”, once" in text
    section = text[text.index("## Against the best control") : text.index("## Scores")]
    assert "minus that of lead" in section and "| trained | +0.650 " in section and "| first |" not in section
    assert "![gain-f1](page-gain-f1.svg)" in text and "+0.650" in (tmp_path / "page-gain-f1.svg").read_text()
    assert "![curves](page-curves.svg)" in text
    curve = (tmp_path / "page-curves.svg").read_text()
    assert "held out: Token F1" in curve and "best control" in curve
    shutil.rmtree(folder / "first/choice")
    (tmp_path / "page-notes.parquet").unlink()
    ((test, _, _, why, *_),) = primary_rows(page(experiment(**changes), tmp_path))
    assert (test, why) == ("f1: best control → trained, held out", "not run")


def test_costs_and_overlaps_are_those_of_everything_that_led_to_the_models(experiment, runs, tmp_path):
    text = page(experiment(), tmp_path)
    assert "| trained | 30 | 240 | 12,345 | 90 | 7,000 | 800 |" in text
    assert "| base | 0 | 0 | 0 | 0 | 0 | 0 |" in text
    assert "| trained | 3.0 | 1,500.0 | 80.0 |" in text
    assert f"| {runs}/pairs | dev.jsonl | 100 | 3 |" in text.replace("\\", "")


@pytest.mark.parametrize(
    ("rows", "epoch", "seen"),
    [
        # Ten passes over two rows: each of the ten steps has both, and no step has eight.
        ({"train": {"deepnote/init_note": 2}}, 10.0, 20),
        ({"train": {"deepnote/init_note": 15, "deepnote/answer": 10}, "dev": {"deepnote/answer": 9}}, 2.64, 66),
        ({}, 1.0, 80),
    ],
)
def test_rows_seen_are_counted_by_epochs_since_the_last_step_of_one_may_be_small(
    experiment, runs, tmp_path, rows, epoch, seen
):
    metrics = {"train_runtime": 90.0, "num_tokens": 12345.0, "epoch": epoch}
    record = TrainingRecord(steps=10, rows=rows, hyperparameters={"batch_size": 8}, metrics=metrics)
    write_training_record(runs / "model", record)
    assert f"| trained | 10 | {seen} | 12,345 | 90 |" in page(experiment(), tmp_path)


def test_the_seconds_of_a_training_that_was_started_again_are_unknown(experiment, runs, tmp_path):
    start = Start(version="1", commit="a", packages={}, hardware={}, seeds={}, inputs={})
    add_start(runs / "model", start)
    assert "| trained | 30 | 240 | 12,345 | 90 |" in page(experiment(), tmp_path)
    add_start(runs / "model", replace(start, commit="b"))
    assert "| trained | 30 | 240 | 12,345 | unknown |" in page(experiment(), tmp_path)


def test_a_score_that_a_run_does_not_have_is_no_evaluation_to_come(experiment, runs, tmp_path):
    text = page(experiment(metrics=["note_words", "f1"]), tmp_path)
    assert "| base | – | not run |" in text
    assert "| trained, seed 1 | – | not run |" in text
    for run in runs.glob("trained-*/near/predictions.jsonl"):
        jsonl.write(
            run, [each | {"scores": {"note_words": 5.0}} for each in map(json.loads, run.read_text().splitlines())]
        )
    only = page(experiment(metrics=["note_words"]), tmp_path)
    assert "| base → trained | – | not run |" in only


def test_models_of_roles_have_costs_and_overlaps_too(experiment, runs, tmp_path):
    notes = {"serve": "models/reader", "models": {"notes": {"serve": str(runs / "model")}}}
    for cell in ("trained-1", "trained-2"):
        (runs / cell / "near/config.yaml").write_text(yaml.safe_dump(notes))
    text = page(experiment(), tmp_path)
    assert "| trained | 30 | 240 | 12,345 | 90 | 7,000 | 800 |" in text
    assert f"| {runs}/pairs | dev.jsonl | 100 | 3 |" in text.replace("\\", "")


def test_cells_are_compared_on_the_seeds_that_both_have(experiment, runs, tmp_path, write_run):
    # The second seed of the other cell is still to come, and its first equals that of `trained`.
    (runs / "other-1").mkdir()
    write_run(runs / "other-1/near", {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0})
    folders = {
        "trained": "{{ output_dir }}/trained-{{ seed }}/{{ set }}",
        "other": "{{ output_dir }}/other-{{ seed }}/{{ set }}",
    }
    text = page(experiment(cells=folders, compare=[["trained", "other"]]), tmp_path)
    assert "| trained → other | +0.000 \\[+0.000, +0.000\\] (1 x 4) | not run |" in text


def test_cells_that_ran_with_different_seeds_are_not_called_not_run(experiment, runs, tmp_path):
    (runs / "trained-2").rename(runs / "other-2")
    folders = {
        "trained": "{{ output_dir }}/trained-{{ seed }}/{{ set }}",
        "other": "{{ output_dir }}/other-{{ seed }}/{{ set }}",
    }
    text = page(experiment(cells=folders, compare=[["trained", "other"]]), tmp_path)
    assert "| trained → other | no seed in common | not run |" in text


def test_questions_answered_by_yes_or_no_are_told_apart(experiment, runs, tmp_path):
    assert "by the gold answer" not in page(experiment(), tmp_path)
    for run in runs.glob("*/near/predictions.jsonl"):
        first, *others = map(json.loads, run.read_text().splitlines())
        jsonl.write(run, [first | {"answers": ["No."]}, *others])
    text = page(experiment(), tmp_path)
    assert "| cell | held out: 1 yes or no | held out: 3 other |" in text
    assert "Always answering “no” has an exact match of 0.25 on held out." in text
    assert "| base | 0.000 \\[0.000, 0.000\\] | 0.000 \\[0.000, 0.000\\] |" in text
    # The first seed is right on one of the other three questions, the second on all of them.
    assert "| trained | 1.000 ± 0.000 \\[1.000, 1.000\\] | 0.667 ± 0.471 \\[0.500, 1.000\\] |" in text


def test_the_plot_shows_every_cell_that_ran_and_the_page_shows_the_plot(experiment, runs, tmp_path):
    text = page(experiment(), tmp_path)
    assert "![f1](page-f1.svg)" in text
    svg = (tmp_path / "page-f1.svg").read_text()
    assert svg.count("<circle") == 2
    assert ">0.750</text>" in svg


def test_a_page_that_shows_facts_shows_the_words_and_notes_without_a_model_beside_each_cell(
    experiment, noted_runs, tmp_path
):
    folder, _ = noted_runs
    (tmp_path / "run").mkdir()
    for cell in ("before", "after"):
        (tmp_path / "run" / cell).mkdir()
        shutil.copytree(folder / cell, tmp_path / "run" / cell / "near")
    cells = {"short": "{{ output_dir }}/before/{{ set }}", "long": "{{ output_dir }}/after/{{ set }}"}
    text = page(experiment(metrics=["note_fact_recall"], cells=cells, compare=[["short", "long"]]), tmp_path)
    assert "| long | 12.0 \\[12.0, 12.0\\] | not run |" in text
    section = text[text.index("## Notes without a model") : text.index("## Differences")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    assert rows[0][:4] == ["", "without a model", "the cell's notes", r"difference \[95% interval\]"]
    facts = {name: shown for name, *shown in rows[2 : 2 + 2 * len(SHOWN)]}
    assert list(facts) == [f"{cell}, {control}" for cell in ("short", "long") for control in SHOWN]
    for control in CONTENDERS:
        mean, notes, difference, *_ = facts[f"long, {control}"]
        assert notes == "0.000" and float(mean) == -float(difference.split()[0]) > 0.1


def test_scores_by_seed_are_shown_where_there_are_seeds(experiment, runs, tmp_path):
    assert "## Seeds" in page(experiment(), tmp_path)
    one = experiment(seeds=[], cells={"base": "{{ output_dir }}/base/{{ set }}"}, compare=[])
    assert "## Seeds" not in page(one, tmp_path)


def test_a_page_without_the_passages_of_a_cell_says_why_its_row_is_missing(experiment, noted_runs, tmp_path):
    folder, world = noted_runs
    shutil.copytree(folder / "after", tmp_path / "run/base/near")
    config = tmp_path / "run/base/near/config.yaml"
    config.write_text(config.read_text().replace(world["index"], "runs/removed"))
    text = page(
        experiment(metrics=["note_fact_recall"], cells={"base": "{{ output_dir }}/base/{{ set }}"}, compare=[]),
        tmp_path,
    )
    assert "- base, held out: not shown; runs/removed: is missing" in text


def test_only_shares_have_a_plot_whose_axis_ends_at_one(experiment, runs, tmp_path):
    for run in runs.glob("*/near/predictions.jsonl"):
        scores = {"note_words": 30.0, "f1": 0.5, "em": 0.0, "note_has_answer": 1.0}
        jsonl.write(run, [each | {"scores": scores} for each in map(json.loads, run.read_text().splitlines())])
    text = page(experiment(metrics=list(scores)), tmp_path)
    assert "| base | 30.0 \\[30.0, 30.0\\] | not run |" in text
    assert [path.name for path in sorted(tmp_path.glob("*.svg"))] == ["page-em.svg", "page-f1.svg"]


def test_before_the_first_run_the_page_has_what_is_asked_and_the_commands(experiment, tmp_path):
    text = page(experiment(), tmp_path)
    assert (
        "Written from the run folders by " in text
        and "A *made-up* experiment." in text
        and "0 of 6 evaluations are finished." in text
    )
    command = f"notewriter pipeline {tmp_path}/experiment.yaml --output_dir {tmp_path}/run --dry_run true"
    assert f"`{command}` prints the commands of its 1 runs." in text
    assert "## " not in text and "|" not in text
    assert not list(tmp_path.glob("*.svg"))


def test_the_page_is_the_same_when_written_again_and_gives_the_command(experiment, runs, tmp_path):
    file = experiment()
    first = page(file, tmp_path)
    assert page(file, tmp_path) == first
    assert f"`notewriter table {file} --output {tmp_path}/page.md`" in first
    main(["--output", f"{tmp_path}/page.md", "--file", str(file)])
    named = (tmp_path / "page.md").read_text()
    assert f"`notewriter table --output {tmp_path}/page.md --file {file}`" in named


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"metrics": ["f2"]},
            "results: metrics: unknown name 'f2'; choose one of: acc, .*those of a file of yours need --plugins",
        ),
        ({"compare": [["base", "other"]]}, "compare: unknown name 'other'; choose one of: base, trained"),
        ({"cells": {"base": "runs/base"}, "compare": []}, r"cells: base: has no {{ set }}"),
        ({"cells": {"base": "runs/{{ sede }}/{{ set }}"}, "compare": []}, r"cells: base: sede in .* is not a variable"),
        ({"cells": {"base": "runs/{{/{{ set }}"}, "compare": []}, r"cells: base: is no template"),
        ({"seeds": []}, r"cells: trained: has {{ seed }}, and there are no seeds; list them"),
        ({"pairs": {"all": "{{ output_dir }}/{{ pear }}"}}, r"pairs: pear in .* is not a variable"),
        ({"pairs": {"all": "{{ output_dir }}/{{ seed }}"}}, r"pairs: seed in .* is not a variable"),
        ({"metrics": ["f1", "calls"]}, r"metrics: 'calls' is a cost, which every page shows; remove it"),
        ({"sets": {}}, "sets"),
        (
            {"primary": [{"metric": "em", "compare": ["base", "trained"]}]},
            "primary: unknown name 'em'; choose one of: f1",
        ),
        ({"primary": [{"metric": "f1", "compare": ["base", "other"]}]}, "primary: unknown name 'other'"),
        ({"primary": [{"metric": "f1", "compare": ["best control", "base"]}]}, "needs controls, and chosen_on"),
        ({"controls": ["base"], "chosen_on": "sett"}, "chosen_on: unknown name 'sett'; choose one of: "),
        ({"primary": [{"metric": "f1", "against": "base"}]}, r"primary\[0\]"),
        ({"curves": {"sizes": [[100, "other"]]}}, "curves: unknown name 'other'"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_results_that_name_nothing_are_refused_with_the_key(experiment, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        page(experiment(**changes), tmp_path)


def test_scores_of_a_metric_family_of_ones_own_are_compared_where_it_is_named(experiment, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OF_ONES_OWN)
    file = experiment(metrics=["f1", "shouted"])
    with pytest.raises(UserError, match="metrics: unknown name 'shouted'"):
        page(file, tmp_path)
    plugins.load(f"{tmp_path}/own.py:FAMILY")
    assert page(file, tmp_path)


def test_controls_of_which_none_is_chosen_are_cells_like_any(experiment, tmp_path):
    assert "## Against the best control" not in page(experiment(controls=["base"]), tmp_path)


def test_a_further_cell_takes_no_others_name(experiment, tmp_path):
    with pytest.raises(UserError, match=r"cells: 'base' exists already; choose another name in --rows"):
        main([str(experiment()), "--output", f"{tmp_path}/page.md", "--rows", '{"base": "runs/mine/{{ set }}"}'])


def test_a_pipeline_without_results_has_no_page(tmp_path):
    (tmp_path / "plain.yaml").write_text("output_dir: x\nruns: [{title: a, command: b}]\n")
    with pytest.raises(UserError, match=r"plain\.yaml: results: is missing"):
        page(tmp_path / "plain.yaml", tmp_path)


@pytest.mark.parametrize("options", [["--cells", "*"], ["--model", "m"], ["--until", "fetch"], ["--page", "false"]])
def test_an_option_of_papers_tables_is_refused_for_an_experiment(experiment, tmp_path, options):
    with pytest.raises(UserError, match=f"{options[0]} has no effect: .* is an experiment"):
        main([str(experiment()), "--output", f"{tmp_path}/page.md", *options])


def test_the_runs_of_an_experiment_are_made_before_its_page(experiment, tmp_path, capsys, monkeypatch):
    done = []
    monkeypatch.setattr("notewriter.results.table.run_here", done.append)
    command = [str(experiment()), "--output", f"{tmp_path}/page.md", "--make", "true"]
    main([*command, "--dry_run", "true"])
    assert not done and not (tmp_path / "page.md").exists()
    assert capsys.readouterr().out.startswith("# ")
    main(command)
    assert len(done) == 1 and (tmp_path / "page.md").exists()
