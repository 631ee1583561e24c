"""The quickstart is a pipeline file with two folders as options."""

import nvidia_smi
import pytest
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
    assert compare.argv()[:6] == ["notewriter", "compare", "--before", "my run/before", "--after", "my run/after"]


def test_it_runs_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert read_pipeline(quickstart.FILE).runs[0].mapping("serve_options") == {}
    assert read_pipeline(quickstart.FILE).runs[4].mapping("serve_options")


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


def printed(capsys, *options):
    """The commands of a dry run."""
    quickstart.main(["--dry_run", "true", *options])
    return capsys.readouterr().out


@pytest.fixture
def on_a_gpu(tmp_path, monkeypatch):
    """Make this a machine with such GPUs, with packages for them, and a hub that has the models `there`."""

    def make(*gpus, there=True):
        nvidia_smi.install(monkeypatch, tmp_path / "bin", *gpus)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(quickstart, "runs_on_cpu", lambda: False)
        monkeypatch.setattr(quickstart, "commit_on_hub", lambda name: "c0ffee" if there else None)

    return make


@pytest.mark.parametrize(
    ("gpu", "there", "model"),
    [
        pytest.param(nvidia_smi.A100, True, "SmolLM2-1.7B-Instruct", id="80 GB"),
        pytest.param(nvidia_smi.RTX_4090, True, "SmolLM2-360M-Instruct", id="24 GB"),
        pytest.param(nvidia_smi.T4, True, "SmolLM2-135M-Instruct", id="16 GB"),
        pytest.param(nvidia_smi.A100, False, "SmolLM2-135M-Instruct", id="80 GB without the hub"),
    ],
)
def test_on_a_gpu_the_same_commands_train_there_the_largest_model_that_can_be_had(on_a_gpu, capsys, gpu, there, model):
    on_a_gpu(gpu, there=there)
    with_gpu = printed(capsys)
    assert f"fetch model HuggingFaceTB/{model} --output_dir models/{model}\n" in with_gpu
    assert (
        f"train dpo --accelerate single --config dpo/quickstart_smollm2 --model_name_or_path models/{model}" in with_gpu
    )
    on_a_gpu()
    without = printed(capsys)
    assert with_gpu.replace(model, "SmolLM2-135M-Instruct").replace("single", "cpu") == without


def test_a_model_that_is_there_is_not_asked_for(on_a_gpu, tmp_path, capsys):
    on_a_gpu(nvidia_smi.A100, there=False)
    (tmp_path / "models/SmolLM2-360M-Instruct").mkdir(parents=True)
    assert "HuggingFaceTB/SmolLM2-360M-Instruct" in printed(capsys)
    assert "--model_name_or_path models/own" in printed(capsys, "--model_dir", "models/own")


def test_packages_for_the_cpu_stay_there_beside_a_gpu(on_a_gpu, monkeypatch, capsys):
    on_a_gpu(nvidia_smi.A100)
    monkeypatch.setattr(quickstart, "runs_on_cpu", lambda: True)
    assert "--accelerate cpu" in printed(capsys)


def test_nothing_in_its_files_is_for_one_kind_of_machine():
    files = [
        RECIPES / "dpo/quickstart_smollm2.yaml",
        *(RECIPES / kind / "quickstart.yaml" for kind in ("data", "eval")),
    ]
    assert not [
        file for file in files if {"use_cpu", "bf16", "enforce_eager"} & set(file.read_text().replace(":", " ").split())
    ]
