"""How `slurm/train.sbatch` ends, with Slurm's commands played by scripts: `test_sbatch.py` has a real Slurm."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "slurm/train.sbatch"
pytestmark = pytest.mark.integration

Job = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def submit(tmp_path: Path) -> Job:
    """Run the job script with a `srun` of these commands; `calls` has the other commands of Slurm that it gave."""
    for name in ("ddp.yaml", "train.py", "calls"):
        (tmp_path / name).touch()
    (tmp_path / "cluster.env").write_text(f"PROCESSES_PER_NODE=1\nVENV={sys.prefix}\nRENDEZVOUS_PORT=29500\n")
    commands = {
        "scontrol": 'echo "scontrol $*" >> calls; [[ $1 != show ]] || echo n1',
        # As the launcher and its ranks would receive it.
        "scancel": 'echo "scancel $*" >> calls; touch signalled',
    }

    def run(srun: str, *options: str, restarts: int = 0) -> subprocess.Popen[str]:
        for name, text in (commands | {"srun": srun}).items():
            file = tmp_path / "bin" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"#!/bin/bash\n{text}\n")
            file.chmod(0o755)
        environment = {
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_RESTART_COUNT": str(restarts),
            "SLURM_NNODES": "1",
            "SLURM_JOB_NODELIST": "n1",
            "CLUSTER_ENV": str(tmp_path / "cluster.env"),
        }
        return subprocess.Popen(
            ["bash", str(SCRIPT), "ddp.yaml", "train.py", *options],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return run


@pytest.mark.parametrize("code", [75, 143])
def test_a_signal_reaches_the_ranks_and_the_job_is_requeued_once_they_have_saved(
    code: int, submit: Job, tmp_path: Path
) -> None:
    saving = f"touch started; until [[ -e signalled ]]; do sleep 0.05; done; sleep 0.5; touch saved; exit {code}"
    job = submit(saving)
    while not (tmp_path / "started").exists():
        time.sleep(0.05)

    job.send_signal(signal.SIGUSR1)

    output, _ = job.communicate(timeout=20)
    assert (tmp_path / "saved").exists()
    assert job.returncode == code
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[1:] == ["scancel --signal=USR1 7.0", "scontrol requeue 7"], output


def test_a_job_that_leaves_no_new_checkpoint_goes_round_three_times_and_ends(submit: Job, tmp_path: Path) -> None:
    old = tmp_path / "out/checkpoint-8/trainer_state.json"
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (0, 0))
    stopped = "touch runs/logs/7/0/stopped; exit 75"

    def start(saves: str = "") -> str:
        return submit(saves + stopped, "--output_dir", "out").communicate(timeout=20)[0]

    assert ["back to the queue" in start() for _ in range(2)] == [True, True]
    # One that does something begins the count anew.
    again = "mkdir -p out/checkpoint-16; touch out/checkpoint-16/trainer_state.json; "
    assert "back to the queue" in start(again)
    os.utime(tmp_path / "out/checkpoint-16/trainer_state.json", (0, 0))
    assert ["back to the queue" in start() for _ in range(2)] == [True, True]
    output = start()
    assert "three starts in a row left no new checkpoint in out" in output and "back to the queue" not in output
    assert (tmp_path / "calls").read_text().count("scontrol requeue 7") == 5


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_preemption_of_which_only_the_ranks_are_told_requeues_the_job(
    restarts: int, submit: Job, tmp_path: Path
) -> None:
    """However soon after its start, and often: its time is not up."""
    # srun ends the node that is last to stop, and reports its code.
    job = submit(f"touch runs/logs/7/{restarts}/stopped; exit 143", restarts=restarts)

    output, _ = job.communicate(timeout=20)
    assert "scontrol requeue 7" in (tmp_path / "calls").read_text(), output


def test_a_cancelled_job_does_not_come_back(submit: Job, tmp_path: Path) -> None:
    job = submit("touch started; sleep 1; touch runs/logs/7/0/stopped; exit 75")
    while not (tmp_path / "started").exists():
        time.sleep(0.05)

    job.send_signal(signal.SIGTERM)

    output, _ = job.communicate(timeout=20)
    assert job.returncode == 75
    assert "requeue" not in (tmp_path / "calls").read_text(), output


def test_of_all_nodes_the_first_failure_is_printed_last(submit: Job, tmp_path: Path) -> None:
    logs = tmp_path / "runs/logs/7/0"
    later = f"echo consequence > {logs}/failed-1700000002.100-n1-rank0.txt"
    first = f"echo cause > {logs}/failed-1700000001.900-n2-rank1.txt"

    # A third node was stopped by srun, because the others had failed.
    job = submit(f"{later}; {first}; touch {logs}/stopped; exit 75")

    output, _ = job.communicate(timeout=20)
    assert job.returncode == 75
    assert output.splitlines()[-1] == "cause"
    assert "requeue" not in (tmp_path / "calls").read_text()


def test_a_finished_training_ends_the_job(submit: Job, tmp_path: Path) -> None:
    job = submit("exit 0")

    job.communicate(timeout=20)
    assert job.returncode == 0
    assert "requeue" not in (tmp_path / "calls").read_text()
