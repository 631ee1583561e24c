"""The quickstart is a pipeline file with two folders as options."""

import yaml

from notewriter.experiments import quickstart
from notewriter.experiments.run import read_pipeline
from notewriter.fetching.model import HUB_ID
from notewriter.ground.recipes import RECIPES


def test_its_options_name_its_folders(monkeypatch):
    ran = []
    monkeypatch.setattr(quickstart, "run_here", ran.append)
    quickstart.main(["--output_dir", "my run", "--model_dir", "models/x"])
    (pipeline,) = ran
    assert pipeline.report == "my run/report.html"
    fetch, *_, compare = pipeline.runs
    assert fetch.argv() == ["notewriter", "fetch", "model", HUB_ID, "--output_dir", "models/x"]
    assert compare.argv() == ["notewriter", "compare", "--before", "my run/before", "--after", "my run/after"]


def test_it_runs_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert read_pipeline(quickstart.FILE).runs[0].serve_options() == {}
    assert read_pipeline(quickstart.FILE).runs[4].serve_options()


def test_the_base_model_and_the_trained_one_are_served_and_asked_alike():
    data, evaluation = (yaml.safe_load((RECIPES / kind / "quickstart.yaml").read_text()) for kind in ("data", "eval"))
    assert data["serve_options"] == evaluation["serve_options"]
    assert "dtype" not in data["serve_options"]
    assert data["stage_sampling"] == evaluation["stage_sampling"]
    runs = {run.title: run for run in read_pipeline(quickstart.FILE).runs}
    before, after = (runs[title].argv() for title in ("evaluate before", "evaluate after"))
    assert before[:-1] == after[:-1]


def test_pairs_and_the_evaluation_before_share_a_server():
    titles = [run.title for run in read_pipeline(quickstart.FILE).runs if run.serve == "models/SmolLM2-135M-Instruct"]
    assert titles == ["roll out and label pairs", "evaluate before"]
