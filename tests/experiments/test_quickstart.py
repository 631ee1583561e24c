"""The quickstart is a pipeline file with two folders as options."""

import yaml

from notewriter.experiments import quickstart
from notewriter.experiments.pipelines.pipeline import PROJECT, read_pipeline

CONFIGS = PROJECT / "configs"


def test_its_options_name_its_folders(monkeypatch):
    ran = []
    monkeypatch.setattr(quickstart, "run_here", ran.append)
    quickstart.main(["--output_dir", "my run", "--model_dir", "models/x"])
    (pipeline,) = ran
    assert pipeline.report == "my run/report.html"
    fetch, *_, compare = pipeline.stages
    assert fetch.argv() == ["notewriter", "fetch-model", "--output_dir", "models/x"]
    assert compare.argv() == ["notewriter", "compare", "--before", "my run/before", "--after", "my run/after"]


def test_the_base_model_and_the_trained_one_are_served_and_asked_alike():
    data, evaluation = (yaml.safe_load((CONFIGS / kind / "quickstart.yaml").read_text()) for kind in ("data", "eval"))
    assert data["serve_options"] == evaluation["serve_options"]
    assert "dtype" not in data["serve_options"]
    assert data["stage_sampling"] == evaluation["stage_sampling"]
    stages = {stage.title: stage for stage in read_pipeline(quickstart.FILE).stages}
    before, after = (stages[title].argv() for title in ("evaluate before", "evaluate after"))
    assert before[:-1] == after[:-1]


def test_pairs_and_the_evaluation_before_share_a_server():
    titles = [
        stage.title for stage in read_pipeline(quickstart.FILE).stages if stage.serve == "models/SmolLM2-135M-Instruct"
    ]
    assert titles == ["roll out and label pairs", "evaluate before"]
