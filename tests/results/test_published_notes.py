"""The notes of an experiment, published beside its page: enough to write the page again without the run folders."""

import hashlib
import shutil

import pytest
import yaml

from notewriter.artifacts.notes import read_notes, write_notes
from notewriter.datasets import load_questions
from notewriter.evaluation.notes import note_scores
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.results.table import main

METRICS = ["note_fact_recall", "note_fact_recall_40", "note_has_answer_40", "next_recall", "f1"]
OF_PASSAGES = ["note_whole_facts_40", "note_stands_alone", "note_named_sentences"]
"""Scores of notes for which their passages are read."""


@pytest.fixture
def noted(noted_runs, tmp_path):
    """An experiment of two cells with notes, of which one has seeds, and its world."""
    folder, world = noted_runs
    for run, place in (("before", "base/near"), ("after", "trained-1/near")):
        shutil.copytree(folder / run, tmp_path / "run" / place)
    results = {
        "title": "What notes hold",
        "text": "A question.",
        "sets": {"near": "held out", "far": "elsewhere"},
        "seeds": [1, 2],
        "cells": {
            "base": "{{ output_dir }}/base/{{ set }}",
            "trained": "{{ output_dir }}/trained-{{ seed }}/{{ set }}",
        },
        "metrics": METRICS,
        "compare": [["base", "trained"]],
        "notes": ["base", "trained"],
    }
    runs = [{"title": "train", "command": "train"}]
    file = tmp_path / "experiment.yaml"
    file.write_text(
        yaml.safe_dump({"output_dir": str(tmp_path / "run"), "runs": runs, "results": results}, sort_keys=False)
    )
    return file, world


def page(file, tmp_path, *options):
    main([str(file), "--output", str(tmp_path / "page.md"), *options])
    return (tmp_path / "page.md").read_text()


def without_command(text):
    return [line for line in text.splitlines() if not line.startswith("Written from ")]


def test_the_page_is_written_again_from_its_notes_when_the_run_folders_are_gone(noted, tmp_path):
    file, _ = noted
    first = page(file, tmp_path)
    plots = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    assert set(plots) >= {"page-words.svg", "page-note_fact_recall.svg"}
    shutil.rmtree(tmp_path / "run")
    again = page(file, tmp_path, "--from_notes", str(tmp_path / "page-notes.parquet"))
    assert without_command(again) == without_command(first)
    assert "Written from published notes by " in again and "2 of 6 evaluations are finished." in again
    assert {path.name: path.read_text() for path in tmp_path.glob("*.svg")} == plots


def test_sections_of_folders_that_are_gone_are_said_to_be_kept(noted, noted_runs, tmp_path):
    file, _ = noted
    assert "Kept as published" not in page(file, tmp_path)
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(noted_runs[0] / "after", tmp_path / "run/trained-2/near")
    text = page(file, tmp_path, "--from_notes", str(tmp_path / "page-notes.parquet"))
    kept = "Notes without a model; Costs; Overlap of training and evaluation questions; How it was run."
    assert f"Kept as published earlier, without evaluations that joined since: {kept}" in text


def test_scores_can_be_computed_again_from_the_notes_and_their_questions(noted, tmp_path):
    file, world = noted
    page(file, tmp_path)
    notes = read_notes(tmp_path / "page-notes.parquet")
    questions = {each.id: each for each in load_questions("jsonl", world["path"])}
    for row, scores in zip(notes.rows, notes.scores, strict=True):
        again = note_scores(row["note"], questions[row["question_id"]])
        assert {name: scores[name] for name in scores if name in again} == {
            name: again[name] for name in again if name in scores
        }
        assert tuple(row["facts"]) == questions[row["question_id"]].supporting_facts and len(row["passages"]) == 3
    assert {(row["cell"], row["seed"]) for row in notes.rows} == {("base", None), ("trained", 1)}


def test_scores_that_published_notes_lack_are_told_from_the_index(noted, tmp_path):
    file, world = noted
    file.write_text(file.read_text().replace("  - f1\n", "".join(f"  - {name}\n" for name in ("f1", *OF_PASSAGES))))
    first, path = page(file, tmp_path), tmp_path / "page-notes.parquet"
    notes = read_notes(path)
    assert all({*OF_PASSAGES} <= scores.keys() for scores in notes.scores)
    older = [{name: value for name, value in scores.items() if name not in OF_PASSAGES} for scores in notes.scores]
    write_notes(path, notes._replace(scores=older))
    shutil.rmtree(tmp_path / "run")
    assert without_command(page(file, tmp_path, "--from_notes", str(path))) != without_command(first)
    again = page(file, tmp_path, "--from_notes", str(path), "--index", world["index"])
    assert without_command(again) == without_command(first)
    # Once they are in the file, no index is needed.
    assert without_command(page(file, tmp_path, "--from_notes", str(path))) == without_command(first)


def test_an_index_is_asked_for_published_passages_alone(noted, tmp_path):
    file, world = noted
    with pytest.raises(UserError, match=r"--index has no effect: .* add --from_notes"):
        page(file, tmp_path, "--index", world["index"])
    page(file, tmp_path)
    path = tmp_path / "page-notes.parquet"
    notes = read_notes(path)
    write_notes(path, notes._replace(rows=[{**row, "passages": ["elsewhere"]} for row in notes.rows]))
    with pytest.raises(UserError, match="has no passage 'elsewhere'; give the index that the notes' runs searched"):
        page(file, tmp_path, "--from_notes", str(path), "--index", world["index"])


def test_another_cell_is_set_beside_published_ones(noted, noted_runs, tmp_path):
    file, _ = noted
    page(file, tmp_path)
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(noted_runs[0] / "after", tmp_path / "mine/near")
    cells = f'{{"mine": "{tmp_path}/mine/{{{{ set }}}}"}}'
    options = ("--from_notes", str(tmp_path / "page-notes.parquet"), "--rows", cells)
    text = page(file, tmp_path, *options)
    assert "3 of 8 evaluations are finished." in text
    rows = [line for line in text.splitlines() if line.startswith(("| trained | 12.0 \\[", "| mine | 12.0 \\["))]
    assert len(rows) == 2 and rows[0].partition("12.0")[2] == rows[1].partition("12.0")[2]
    assert "mine" in {row["cell"] for row in read_notes(tmp_path / "page-notes.parquet").rows}


def test_runs_that_are_published_are_not_read_again_and_new_ones_join_them(noted, noted_runs, tmp_path):
    file, _ = noted
    page(file, tmp_path)
    shutil.copytree(noted_runs[0] / "after", tmp_path / "run/trained-2/near")
    # What is of the folders is told anew while all are there.
    (tmp_path / "run/trained-1/near/traces.jsonl").unlink()
    text = page(file, tmp_path, "--from_notes", str(tmp_path / "page-notes.parquet"))
    assert "3 of 6 evaluations are finished." in text and "| trained, seed 2 |" in text
    assert "Written from published notes and the run folders by " in text
    assert {row["seed"] for row in read_notes(tmp_path / "page-notes.parquet").rows} == {None, 1, 2}


def test_folders_with_other_runs_now_say_nothing_of_the_published_ones(noted, noted_runs, tmp_path):
    file, _ = noted
    first = page(file, tmp_path)
    shutil.rmtree(tmp_path / "run/base/near")
    shutil.copytree(noted_runs[0] / "after", tmp_path / "run/base/near")
    again = page(file, tmp_path, "--from_notes", str(tmp_path / "page-notes.parquet"))
    assert without_command(again) == without_command(first)


def test_notes_side_by_side_are_of_the_first_seed_whichever_was_published_first(noted, noted_runs, tmp_path):
    file, _ = noted
    run = tmp_path / "run"
    (run / "trained-1").rename(run / "trained-2")
    page(file, tmp_path)
    shutil.copytree(noted_runs[0] / "after", run / "trained-1/near")
    page(file, tmp_path, "--from_notes", str(tmp_path / "page-notes.parquet"))
    seeds = [row["seed"] for row in read_notes(tmp_path / "page-notes.parquet").rows]
    assert seeds == [None, 1, 2] * (len(seeds) // 3)


def test_published_notes_are_not_lost_with_their_runs(noted, tmp_path):
    file, _ = noted
    page(file, tmp_path)
    published = (tmp_path / "page-notes.parquet").read_bytes()
    shutil.rmtree(tmp_path / "run/base")
    with pytest.raises(UserError, match=r"has the notes of base on near, seed None, whose run is gone; keep them with"):
        page(file, tmp_path)
    assert (tmp_path / "page-notes.parquet").read_bytes() == published
    # A cell that the file no longer names is not asked for.
    content = yaml.safe_load(file.read_text())
    del content["results"]["cells"]["base"]
    content["results"] |= {"compare": [], "notes": []}
    file.write_text(yaml.safe_dump(content))
    assert "1 of 4 evaluations are finished." in page(file, tmp_path)


def test_published_passages_are_not_lost_with_their_index(noted, tmp_path):
    file, world = noted
    # Scores of a further search cannot be without the index.
    file.write_text(file.read_text().replace("  - next_recall\n", ""))
    page(file, tmp_path)
    published = (tmp_path / "page-notes.parquet").read_bytes()
    shutil.move(world["index"], tmp_path / "elsewhere")
    try:
        with pytest.raises(UserError, match=r"notes of base on near, seed None, whose questions or passages are gone"):
            page(file, tmp_path)
        assert (tmp_path / "page-notes.parquet").read_bytes() == published
        rows = read_notes(tmp_path / "page-notes.parquet").rows
        page(file, tmp_path, "--from_notes", str(tmp_path / "page-notes.parquet"))
        assert read_notes(tmp_path / "page-notes.parquet").rows == rows
    finally:
        shutil.move(tmp_path / "elsewhere", world["index"])


def test_notes_stand_side_by_side_on_questions_that_a_hash_chooses_with_their_markup_escaped(noted, tmp_path):
    file, world = noted
    run = tmp_path / "run/base/near/predictions.jsonl"
    jsonl.write(run, [each | {"note": "<script>x</script> *bold*"} for _, each in jsonl.read(run)])
    text = page(file, tmp_path)
    section = text[text.index("## Notes side by side") : text.index("## Notes and questions")]
    ids = [each.id for each in load_questions("jsonl", world["path"])]
    questions = {each.id: each.question for each in load_questions("jsonl", world["path"])}
    first = min(ids, key=lambda id: hashlib.sha256(id.encode()).hexdigest())
    assert section.split("**")[1] == questions[first]
    assert "- base (0.000): &lt;script&gt;x&lt;/script&gt; \\*bold\\*" in section
    digest = hashlib.sha256("".join(f"{id}\n" for id in sorted(ids)).encode()).hexdigest()
    assert f"| held out | {len(ids)} | {digest} |" in text


def test_a_file_of_another_kind_is_refused(noted, tmp_path):
    file, _ = noted
    with pytest.raises(UserError, match=r"nothing\.parquet: no such file"):
        page(file, tmp_path, "--from_notes", str(tmp_path / "nothing.parquet"))
    (tmp_path / "text.parquet").write_text("no Parquet")
    with pytest.raises(UserError, match=r"text\.parquet: is not a readable Parquet file"):
        page(file, tmp_path, "--from_notes", str(tmp_path / "text.parquet"))
