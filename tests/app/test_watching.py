import json
import os
import re
import time
from html import unescape
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra `serve`")

from starlette.testclient import TestClient
from written_runs import write_run as write_run

from notewriter.app.application import AppSection, make_app
from notewriter.app.watching import LineCounts, Watching
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError


@pytest.fixture
def watch():
    """A client of the page that watches."""

    def open_page(*names):
        watched = Watching([str(name) for name in names])
        client = TestClient(make_app([AppSection("/watch", "Watch", "", watched.routes)], "right", 8002))
        client.base_url = "http://127.0.0.1:8002"
        client.get("/?token=right")
        return client

    return open_page


def runs_on(page):
    """Title -> its text, without tags."""
    articles = re.findall(r'<article class="run">(.*?)</article>', page.text, re.DOTALL)
    texts = [" ".join(unescape(re.sub("<[^>]+>", " ", each)).split()) for each in articles]
    return {text.split()[0]: text for text in texts}


def run_folder(folder, lines=0, **files):
    """A run folder of an evaluation with so many lines in its journal."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "traces.jsonl").write_text("{}\n" * lines)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


ESTIMATE = {
    "schema": "notewriter/estimate/1",
    "questions": 8,
    "tokens_in_all": {"prompt_tokens": 4000, "completion_tokens": 80},
    "money": 2.0,
}


def test_the_runs_below_a_folder_are_shown_with_what_they_made(tmp_path, watch, write_run):
    run = run_folder(tmp_path / "cells" / "one", 2, estimate=ESTIMATE)
    jsonl.write(run / "spent.jsonl", [{"role": "policy", "cost": 0.25}, {"role": "policy", "cost": 0.5}])
    done = write_run(tmp_path / "cells" / "two", {"q1": 1.0, "q2": 0.0})
    (done / "run.json").write_text("{}")
    reply = watch(tmp_path).get("/watch")
    shown = runs_on(reply)
    assert re.search(r"unfinished, last written \d s ago 2 of 8 questions 0\.75 paid", shown["cells/one"])
    assert "to come, by the estimate: 3,000 + 60 tokens, 1.50" in shown["cells/one"]
    assert "finished 2 questions Token F1 0.500 [0.400, 0.600]" in shown["cells/two"]
    assert reply.headers["refresh"] == "5"


def test_what_is_written_meanwhile_is_shown_at_the_next_look(tmp_path, watch):
    run = run_folder(tmp_path / "run", 2, estimate=ESTIMATE)
    client = watch(run)
    client.get("/watch")
    with open(run / "traces.jsonl", "a") as file:
        file.write('{}\n{"half')
    assert "3 of 8 questions" in client.get("/watch").text


def test_only_what_is_new_in_a_file_is_read(tmp_path):
    path, lines = tmp_path / "file", LineCounts()
    path.write_text("a\nb\nc")
    assert lines.of(path) == 2
    path.write_text("X\nX\nc\nd\n")  # What was there is not looked at again.
    assert lines.of(path) == 4
    path.write_text("a\n")
    assert lines.of(path) == 1


PIPELINE = """
output_dir: {folder}/pipeline
runs:
  - {{title: world, command: notewriter world --output_dir {folder}/world}}
  - {{title: pairs, command: notewriter pairs --output_dir {folder}/pairs}}
  - {{title: evaluate, command: notewriter evaluate --output_dir {folder}/run}}
  - {{title: report, command: notewriter report --output {folder}/report.html}}
"""


def test_the_stages_of_a_pipeline_are_shown_with_their_state(tmp_path, watch):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(folder=tmp_path))
    (tmp_path / "world" / "test").mkdir(parents=True)
    (tmp_path / "world" / "test" / "questions.jsonl").touch()
    logs = tmp_path / "pipeline" / "logs"
    logs.mkdir(parents=True)
    (logs / "02-pairs.log").write_text("error: the <b>disk</b> is full\n")
    (logs / "03-evaluate.log").write_text("...\n")
    os.utime(logs / "03-evaluate.log", (time.time() - 7300,) * 2)
    run_folder(tmp_path / "run", 3)
    reply = watch(tmp_path / "pipeline.yaml").get("/watch")
    shown = runs_on(reply)
    assert shown["world"].startswith("world finished")
    assert shown["pairs"] == "pairs failed: the <b>disk</b> is full" and "<b>disk" not in reply.text
    assert shown["evaluate"].startswith("evaluate unfinished, log written 2 h ago 3 questions")
    assert shown["report"].startswith("report not run")


def test_the_curves_of_a_training_are_a_picture_of_their_own(tmp_path, watch):
    run = run_folder(tmp_path / "runs" / "dpo")
    log = [{"step": step, "loss": 1 / step, "rewards/margins": step / 10} for step in range(1, 6)]
    (run / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    client = watch(tmp_path / "runs")
    page = client.get("/watch")
    assert "step 5, loss 0.200" in runs_on(page)["dpo"]
    (address,) = re.findall(r'<img src="([^"]+)" alt="training curves of dpo"', page.text)
    chart = client.get(unescape(address))
    assert chart.headers["content-type"].startswith("image/svg+xml") and "Training curves" in chart.text


@pytest.mark.parametrize("query", ["", "of=/etc&name=training", "of={run}&name=passwd", "of={run}/../..&name=scores"])
def test_only_charts_of_watched_runs_are_served(tmp_path, watch, query):
    run = run_folder(tmp_path / "run")
    assert watch(run).get(f"/watch/chart.svg?{query.format(run=run)}").status_code == 404


def test_a_chart_is_not_there_while_slurm_does_not_answer(tmp_path, watch, monkeypatch):
    def failing(self):
        raise UserError("squeue: Unable to contact slurm controller")

    run = run_folder(tmp_path / "run")
    client = watch(run)
    monkeypatch.setattr(Watching, "groups", failing)
    assert client.get("/watch/chart.svg", params={"of": str(run), "name": "training"}).status_code == 404
    assert "Unable to contact slurm controller" in client.get("/watch").text


def test_a_damaged_file_is_told_and_the_others_are_shown(tmp_path, watch):
    run_folder(tmp_path / "one", 1, metrics={"schema": "other"})
    run_folder(tmp_path / "two", 4)
    shown = runs_on(watch(tmp_path).get("/watch"))
    assert "cannot be read: " in shown["one"] and "4 questions" in shown["two"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("estimate", '{"questions": 0, "tokens_in_all": {}}', "questions: 0 is too small"),
        ("estimate", '{"questions": 5}', "has no 'tokens_in_all'"),
        ("estimate", '{"questions": "5"}', "questions must be int, not '5'"),
        ("estimate", "{", "is not JSON"),
        ("estimate", "[" * 100_000, "is not JSON"),
        ("trainer_state", '{"log_history": [{"step": 1, "loss": "x"}]}', "log_history[0]: loss must be float, not 'x'"),
        ("trainer_state", '{"log_history": [{"step": 1, "loss": [1]}]}', "log_history[0]: loss must be float, not [1]"),
        ("trainer_state", '{"log_history": [{"step": "one"}]}', "log_history[0]: step must be int, not 'one'"),
        ("trainer_state", '{"log_history": [{"step": 1, "loss": 1%s}]}' % ("0" * 400), "loss must be float"),
        ("trainer_state", "[]", "must be object, not []"),
        ("costs", "{}", "has the schema None"),
        ("stats", '"text"', "is not the statistics of training data"),
    ],
)
def test_the_damaged_part_of_a_run_is_told_and_the_rest_is_shown(tmp_path, watch, name, content, told):
    run_folder(tmp_path / "good", 4)
    run = run_folder(tmp_path / "bad", 2)
    (run / f"{name}.json").write_text(content)
    reply = watch(tmp_path).get("/watch")
    shown = runs_on(reply)
    assert reply.status_code == 200 and "4 questions" in shown["good"] and "2 questions" in shown["bad"]
    assert f"{name}.json" in shown["bad"] and told in shown["bad"]
    assert shown["bad"].count("cannot be read") == 1


def test_a_damaged_record_of_what_was_paid_is_told(tmp_path, watch):
    run = run_folder(tmp_path / "run", 2)
    (run / "spent.jsonl").write_text('{"cost": 1}\n{"cost": "much"}\n')
    assert "spent.jsonl:2: cost must be float, not 'much'" in watch(run).get("/watch").text.replace("&#39;", "'")


@pytest.mark.parametrize("losses", [(1e308, -1e308), (float("nan"), 1.0), (5e-324, 0.0), (1.0, 1.0000000000000002)])
def test_losses_beyond_all_measure_are_drawn_or_left_out(tmp_path, watch, losses):
    run = run_folder(tmp_path / "runs" / "dpo")
    log = [{"step": step, "loss": loss} for step, loss in enumerate(losses, start=1)]
    (run / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    client = watch(tmp_path / "runs")
    assert "step 2, loss" in runs_on(client.get("/watch"))["dpo"]
    chart = client.get("/watch/chart.svg", params={"of": str(run), "name": "training"})
    assert chart.status_code in (200, 404) and "nan" not in chart.text and "inf" not in chart.text


def test_files_that_go_while_they_are_looked_at_leave_the_page(tmp_path, watch, monkeypatch):
    run = run_folder(tmp_path / "run", 2)
    (run / "gone").symlink_to("nowhere")
    (run / "metrics.json.tmp").touch()
    stat = Path.stat

    def renamed_after(path, **options):
        found = stat(path, **options)
        if path.name == "metrics.json.tmp":
            path.unlink()
        return found

    monkeypatch.setattr(Path, "stat", renamed_after)
    reply = watch(run).get("/watch")
    assert reply.status_code == 200 and re.search(r"last written \d s ago 2 questions", runs_on(reply)["."])


def test_what_is_neither_a_folder_nor_a_pipeline_is_one_line(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        Watching([str(tmp_path / "nowhere.yaml")])


def test_nothing_is_written(tmp_path, watch):
    run = run_folder(tmp_path / "run", 1, estimate=ESTIMATE)
    before = {path: path.stat().st_mtime_ns for path in (run, *run.iterdir())}
    watch(run).get("/watch")
    assert {path: path.stat().st_mtime_ns for path in (run, *run.iterdir())} == before
