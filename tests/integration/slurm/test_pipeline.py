"""Pipelines as jobs of a Slurm of two nodes."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from slurm_cluster import Cluster, wait_until

from notewriter.experiments import slurm
from notewriter.experiments.run import Pipeline, read_pipeline

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.integration


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process submits to the cluster, from the project's folder."""
    monkeypatch.chdir(ROOT)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def states(pipeline: Pipeline) -> dict[str, str]:
    lines = slurm.status(pipeline).splitlines()
    return {run.title: line[len(run.title) :].strip() for run, line in zip(pipeline.runs, lines, strict=True)}


def run_to_the_end(pipeline: Pipeline, cluster_env: Path, seconds: float = 240) -> dict[str, str]:
    """Submit what is missing and wait until no job of the pipeline is left; returns the states."""
    slurm.submit(pipeline, cluster_env)
    jobs = set(itertools.chain.from_iterable(json.loads((pipeline.logs / slurm.JOBS).read_text()).values()))
    try:
        wait_until(lambda: not jobs & slurm._queue(jobs).keys(), "the pipeline's jobs", seconds)
    finally:
        subprocess.run(["scancel", *jobs], capture_output=True)
    return states(pipeline)


def test_a_pipeline_runs_as_jobs_and_what_failed_is_submitted_again(
    here: None, cluster_env: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    entries = [
        {
            "title": "generate a world",
            "command": "notewriter world --output_dir {{ output_dir }}/world --hops 2",
        },
        {
            "title": "count",
            # It needs a file that is not there at first.
            "command": "bash -c 'cat {{ output_dir }}/missing && touch {{ output_dir }}/counted || "
            "{ echo error: nothing to count; exit 1; }'",
            "result": "{{ output_dir }}/counted",
        },
        {
            "title": "train",
            "command": "bash -c 'mkdir {{ model }} && echo $SLURM_JOB_NUM_NODES > {{ model }}/nodes'",
            "result": "{{ model }}/nodes",
            "needs": {"nodes": 2},
        },
        {"title": "look", "command": "ls {{ output_dir }}/model", "after": ["train"]},
    ]
    file = tmp_path / "pipeline.yaml"
    variables = {"model": "{{ output_dir }}/model"}
    file.write_text(yaml.safe_dump({"output_dir": str(run), "variables": variables, "runs": entries}))
    pipeline = read_pipeline(file)

    first = run_to_the_end(pipeline, cluster_env)
    assert first["generate a world"].startswith("finished")
    assert first["count"].startswith("failed: nothing to count") and "02-count.log" in first["count"]
    assert first["train"].startswith("cancelled before it started")
    assert "No such file" in (run / "logs/02-count.log").read_text()

    (run / "missing").touch()
    shown = slurm.submit(pipeline, cluster_env, dry_run=True)
    assert "# generate a world: finished" in shown and "02-count.log" in shown
    second = run_to_the_end(pipeline, cluster_env)
    assert second["train"].startswith("finished"), (run / "logs/03-train.log").read_text()
    assert (run / "model/nodes").read_text() == "2\n"
    assert (run / "logs/04-look.log").read_text().endswith("nodes\n")


def test_jobs_get_the_cpus_memory_and_gpus_that_their_runs_need(
    here: None, cluster: Cluster, cluster_env: Path, tmp_path: Path
) -> None:
    with open(cluster_env, "a") as settings:
        settings.write("GPUS_PER_NODE=2\nCPUS_PER_GPU=1\nMEMORY_GB_PER_GPU=2\nGPUS_OPTION=--gres=gpu:a100:%d\n")
        settings.write("CPUS_WITHOUT_GPU=3\nMEMORY_GB_WITHOUT_GPU=1\nWHOLE_NODES=yes\n")
    needs: dict[str, dict[str, int]] = {
        "none": {},
        "a GPU": {"gpus": 1},
        "own": {"gpus": 1, "cpus": 2, "memory_gb": 5},
        "whole nodes": {"gpus": 4},
    }
    show = "bash -c 'echo $SLURM_CPUS_ON_NODE of $SLURM_JOB_CPUS_PER_NODE, ${SLURM_GPUS_ON_NODE:-0}'"
    entries = [{"title": title, "command": show, "after": [], "needs": each} for title, each in needs.items()]
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"output_dir": str(tmp_path / "run"), "runs": entries}))
    pipeline = read_pipeline(file)

    run_to_the_end(pipeline, cluster_env)

    printed = {run.title: pipeline.log(run).read_text().splitlines()[-1] for run in pipeline.runs}
    assert printed == {"none": "3 of 3, 0", "a GPU": "1 of 1, 1", "own": "2 of 2, 1", "whole nodes": "4 of 4(x2), 2"}
    jobs = json.loads((pipeline.logs / slurm.JOBS).read_text())
    asked = {title: cluster.show(job) for title, (job,) in jobs.items()}
    memory = {"none": "1G", "a GPU": "2G", "own": "5G", "whole nodes": "0"}
    assert {title: job["MinMemoryNode"] for title, job in asked.items()} == memory
    assert asked["whole nodes"]["TresPerNode"] == "gres:gpu:a100:2"


def training(tiny_model: Path, tiny_pairs: Path, name: str, disturbed: bool = False) -> dict[str, object]:
    """A run of a pipeline: DPO in six small steps on two nodes."""
    options = f"--model_name_or_path {tiny_model} --pairs {tiny_pairs} --output_dir {{{{ output_dir }}}}/{name}"
    options += " --total_batch_size 4 --per_device_train_batch_size 2 --max_length 64 --max_steps 6 --disable_tqdm true"
    options += " --learning_rate 0.001 --save_strategy no"
    script = f"{'tests/integration/signalled.py ' * disturbed}training/train_dpo.py"
    return {
        "title": name,
        "command": f"accelerate launch --config_file configs/accelerate/cpu_ddp.yaml {script} {options}",
        "result": f"{{{{ output_dir }}}}/{name}/training.json",
        "after": [],
        "needs": {"nodes": 2, "hours": 1},
    }


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_training_that_loses_its_time_its_place_a_node_and_its_job_ends_like_one_left_alone(
    cluster: Cluster, here: None, cluster_env: Path, tiny_model: Path, tiny_pairs: Path, tmp_path: Path
) -> None:
    import torch

    held, run = tmp_path / "held", tmp_path / "run"
    held.mkdir()
    for step in (1, 2, 3, 5):
        (held / f"hold-{step}").touch()
    with open(cluster_env, "a") as settings:
        settings.write(f"export DISTURB='hold {held}'\n")
    names = ("undisturbed", "disturbed")
    entries = [training(tiny_model, tiny_pairs, name, name == "disturbed") for name in names]
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"output_dir": str(run), "runs": entries}))
    pipeline = read_pipeline(file)
    log = pipeline.log(pipeline.runs[1])

    def both_ranks_are_in(step: int) -> None:
        wait_until(lambda: len(list(held.glob(f"held-{step}-*"))) == 2, f"step {step}", 240)

    def let_go(step: int) -> None:
        (held / f"hold-{step}").unlink()

    def checkpoints() -> list[str]:
        return sorted(path.name for path in (run / "disturbed").glob("checkpoint-*"))

    def back_in_the_queue(times: int) -> None:
        wait_until(lambda: cluster.show(job)["Restarts"] == str(times), f"the queue for the {times}. time")

    try:
        slurm.submit(pipeline, cluster_env)
        (job,) = json.loads((pipeline.logs / slurm.JOBS).read_text())["disturbed"]

        # Its time: what is left is less than the script asks to be warned of.
        both_ranks_are_in(1)
        cluster.run("scontrol", "update", f"jobid={job}", "timelimit=5")
        wait_until(lambda: "time is nearly up" in log.read_text(), "Slurm's signal")
        cluster.run("scontrol", "update", f"jobid={job}", "timelimit=60")
        let_go(1)
        back_in_the_queue(1)
        assert checkpoints() == ["checkpoint-1"]

        # Its place: a job of a partition that goes before. Ranks have two minutes, the batch script is not told.
        both_ranks_are_in(2)
        urgent = cluster.run("sbatch", "--parsable", "-p", "urgent", f"-o{tmp_path}/urgent.out", "--wrap=true")
        wait_until(lambda: cluster.show(job)["PreemptTime"] != "None", "the preemption")
        let_go(2)
        back_in_the_queue(2)
        assert checkpoints() == ["checkpoint-1", "checkpoint-2"]
        wait_until(lambda: cluster.show(urgent)["JobState"] == "COMPLETED", "the urgent job")

        # A node: Slurm notices after SlurmdTimeout, and requeues the job. Step 3 is lost.
        both_ranks_are_in(3)
        cluster.lose("n2")
        let_go(3)
        back_in_the_queue(3)
        assert checkpoints() == ["checkpoint-1", "checkpoint-2"]
        cluster.start_node("n2")

        # Its job.
        both_ranks_are_in(5)
        assert "checkpoint-2: resuming" in log.read_text()
        cluster.run("scancel", job)
        let_go(5)
        wait_until(lambda: cluster.show(job)["JobState"] not in ("RUNNING", "COMPLETING"), "the job's end")
        assert cluster.show(job)["JobState"] == "CANCELLED"
        assert checkpoints() == ["checkpoint-1", "checkpoint-2", "checkpoint-5"]
        assert "ended without its result" in states(pipeline)["disturbed"]

        assert all(state.startswith("finished") for state in run_to_the_end(pipeline, cluster_env).values())
    except AssertionError as error:
        raise AssertionError(log.read_text()[-6000:] if log.exists() else "no log") from error
    finally:
        cluster.run("scancel", "--me")
    assert "checkpoint-5: resuming" in log.read_text()
    expected, found = (weights(run / name) for name in names)
    assert expected.keys() == found.keys() and all(torch.equal(expected[name], found[name]) for name in expected)
    base = weights(tiny_model)
    assert max((expected[name] - base[name]).abs().max() for name in base) > 1e-4


def test_the_quickstart_runs_as_jobs_from_the_world_to_the_report(
    here: None, cluster_env: Path, vllm: Path, tiny_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    settings = json.loads((model / "config.json").read_text())
    # As long as the quickstart's prompts.
    (model / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 2048}))
    content = yaml.safe_load((ROOT / "configs/pipelines/quickstart.yaml").read_text())
    content["variables"]["train"] += " --limit 6"
    content["variables"]["test"] += " --limit 4"
    (train,) = (run for run in content["runs"] if " train dpo " in run["command"])
    train["needs"] = {"nodes": 2}
    content["variables"]["accelerate"] = "cpu_ddp"
    train["command"] = f"{train['command']} --max_steps 2 --dtype float32 --disable_tqdm true"
    file, run = tmp_path / "quickstart.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(content))
    pipeline = read_pipeline(file, str(run), {"model_dir": str(model)})

    found = run_to_the_end(pipeline, cluster_env)

    logs = "\n".join(f"--- {log}\n{log.read_text()[-3000:]}" for log in sorted(pipeline.logs.glob("*.log")))
    assert all(state.startswith("finished") for title, state in found.items() if title != "compare"), logs
    log = (pipeline.logs / "07-train-with-simpo.log").read_text()
    assert "n1: machine 0 of 2, ranks 0 to 0" in log and "n2: machine 1 of 2, ranks 1 to 1" in log
    assert json.loads((run / "checkpoint/training.json").read_text())["hyperparameters"]["processes"] == 2
    assert "before" in (pipeline.logs / "10-compare.log").read_text()
    assert (run / "report.html").stat().st_size > 10_000
    # Pairs and two evaluations, each with a server of its own.
    assert [line.split(": ")[1] for line in vllm.read_text().splitlines()] == ["alone"] * 3
