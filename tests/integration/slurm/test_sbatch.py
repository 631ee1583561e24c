"""Job scripts: their mistakes, and what becomes of them on a Slurm of two nodes."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import PATH, Cluster, wait_until

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "slurm/train.sbatch"
pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["ddp.yaml", "train.py"], {"SLURM_JOB_ID": ""}, "this is a job script; submit it"),
        (["ddp.yaml"], {}, "usage: sbatch"),
        (["nowhere.yaml", "train.py"], {}, "nowhere.yaml: no such accelerate configuration"),
        (["ddp.yaml", "nowhere.py"], {}, "nowhere.py: no such training script"),
        (
            ["ddp.yaml", "train.py"],
            {"SLURM_CPUS_ON_NODE": "1", "SLURM_GPUS_ON_NODE": "8"},
            "1 CPUs for 8 GPUs; submit it with --exclusive --mem=0, or",
        ),
        (["ddp.yaml", "train.py"], {}, "slurm/cluster.env: no such file"),
        (["ddp.yaml", "train.py"], {"CLUSTER_ENV": "empty.env"}, "empty.env: PROCESSES_PER_NODE is not set"),
        (["ddp.yaml", "train.py"], {"CLUSTER_ENV": "wrong.env"}, "/no/venv: has no bin/accelerate"),
    ],
)
def test_mistakes_end_the_job_with_one_line(
    arguments: list[str], changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    for name in ("ddp.yaml", "train.py", "empty.env"):
        (tmp_path / name).touch()
    (tmp_path / "wrong.env").write_text("PROCESSES_PER_NODE=1\nVENV=/no/venv\nRENDEZVOUS_PORT=29500\n")
    environment = {"PATH": PATH, "SLURM_JOB_ID": "1", "SLURM_SUBMIT_DIR": str(tmp_path)} | changes

    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def waiting(cluster: Cluster, cluster_env: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A job of one node, by its number and its log: a command that takes ten seconds to end when it is told."""
    log = tmp_path / "job.out"
    with open(cluster_env, "a") as settings:
        # What stands for a container here.
        settings.write("CONTAINER='env INSIDE=one'\n")
    environment = cluster.environment | {"CLUSTER_ENV": str(cluster_env)}
    command = ["sbatch", "--parsable", f"--output={log}", f"--chdir={ROOT}", str(ROOT / "slurm/run.sbatch")]
    command += [
        "bash",
        "-c",
        "trap 'sleep 10; echo ended; exit 143' TERM; echo started in $INSIDE; while :; do sleep 0.2; done",
    ]
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    try:
        wait_until(lambda: log.exists() and "\nstarted in one" in log.read_text(), "the command")
        wait_until(lambda: f"{job}.0 " in cluster.run("squeue", "--steps", "--noheader", "--format=%i "), "its step")
        yield job, log
    finally:
        subprocess.run(["scancel", job], env=environment, capture_output=True)


def is_queued_again(cluster: Cluster, job: str) -> bool:
    shown = cluster.show(job)
    return shown["Restarts"] == "1" and shown["JobState"] == "PENDING"


def test_a_job_whose_time_is_nearly_up_ends_its_command_and_goes_back_to_the_queue(
    waiting: tuple[str, Path], cluster: Cluster
) -> None:
    job, log = waiting
    # What Slurm sends for --signal=B:USR1@120.
    cluster.run("scancel", "--batch", "--signal=USR1", job)
    wait_until(lambda: "\nended\nback to the queue\n" in log.read_text(), "the command's end")
    wait_until(lambda: is_queued_again(cluster, job), "the queue")


def test_a_preempted_job_ends_its_command_within_the_grace_time(waiting: tuple[str, Path], cluster: Cluster) -> None:
    job, log = waiting
    urgent = cluster.run(
        *("sbatch", "--parsable", "--partition=urgent", "--nodes=2", "--exclusive", "--mem=0", "--output=/dev/null"),
        *("--wrap", "sleep 30"),
    )
    try:
        told = time.monotonic()
        # The grace time is 120 s.
        wait_until(lambda: "\nended\nback to the queue\n" in log.read_text(), "the command's end", seconds=60)
        assert "pre-empted: ending the command" in log.read_text(), time.monotonic() - told
        wait_until(lambda: is_queued_again(cluster, job), "the queue")
    finally:
        cluster.run("scancel", urgent)


def test_a_cancelled_job_of_one_node_does_not_come_back(waiting: tuple[str, Path], cluster: Cluster) -> None:
    job, log = waiting
    cluster.run("scancel", job)
    wait_until(lambda: "\nended" in log.read_text(), "the command's end")
    wait_until(lambda: cluster.show(job)["JobState"] == "CANCELLED", "the job's end")
    assert cluster.show(job)["Restarts"] == "0" and "back to the queue" not in log.read_text()


@pytest.mark.parametrize(
    ("leaves", "goes_back"),
    [
        pytest.param("", False, id="nothing new"),
        pytest.param("touch out/run.json out/server.log;", False, id="its record and logs"),
        pytest.param("touch out/answers.jsonl;", True, id="results"),
        pytest.param('touch "$NOTEWRITER_CACHE";', True, id="replies"),
    ],
)
def test_a_job_that_leaves_nothing_three_times_in_a_row_ends(leaves: str, goes_back: bool, tmp_path: Path) -> None:
    for name, text in {"scontrol": "exit 0", "squeue": "echo RUNNING", "srun": "exit 0"}.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "out").mkdir()
    (tmp_path / "cluster.env").write_text(f"VENV={sys.prefix}\n")
    environment = {
        "PATH": f"{tmp_path}/bin:{PATH}",
        "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": "n1",
        "CLUSTER_ENV": str(tmp_path / "cluster.env"),
        "NOTEWRITER_CACHE": str(tmp_path / "cache.sqlite"),
    }
    # What Slurm sends before the time limit reaches the job's shell, which is the command's parent.
    work = f"trap 'exit 143' TERM; {leaves} kill -USR1 $PPID; while :; do sleep 0.1; done"
    job = ["bash", str(ROOT / "slurm/run.sbatch"), "bash", "-c", work, "work", "--output_dir", "out"]
    ends = [
        subprocess.run(job, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60) for _ in range(3)
    ]
    assert ["back to the queue" in done.stdout for done in ends] == [True, True, goes_back]
    assert goes_back or "three starts in a row left nothing new in out" in ends[2].stderr


@pytest.mark.parametrize("script", ["run.sbatch", "serve.sbatch"])
@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["true"], {"SLURM_JOB_ID": ""}, "this is a job script; submit it"),
        ([], {}, "usage: sbatch"),
        (["true"], {"SLURM_CPUS_ON_NODE": "7", "SLURM_GPUS_ON_NODE": "8"}, "7 CPUs for 8 GPUs; submit it with"),
        (["true"], {}, "slurm/cluster.env: no such file"),
        (["true"], {"CLUSTER_ENV": "empty.env"}, "empty.env: VENV= has no bin/python"),
    ],
)
def test_mistakes_end_a_job_of_one_node_with_one_line(
    script: str, arguments: list[str], changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.env").touch()
    environment = {"PATH": PATH, "SLURM_JOB_ID": "1", "SLURM_SUBMIT_DIR": str(tmp_path)} | changes
    command = ["bash", str(ROOT / "slurm" / script), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def ask(address: str, key: str) -> Any:
    body = {"messages": [{"role": "user", "content": "hi"}], "model": "fake"}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{address}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as reply:
        return json.load(reply)


def test_a_server_over_two_nodes_tells_its_address_and_finishes_what_is_in_flight_when_it_is_stopped(
    cluster: Cluster, cluster_env: Path, vllm: Path, tiny_model: Path, tmp_path: Path
) -> None:
    with open(cluster_env, "a") as settings:
        settings.write("export VLLM_DELAY=10\n")
    log, folder = tmp_path / "job.out", tmp_path / "serve"
    address = folder / f"{tiny_model.name}.url"
    command = [
        "sbatch",
        "--parsable",
        "--nodes=2",
        f"--output={log}",
        f"--chdir={ROOT}",
        str(ROOT / "slurm/serve.sbatch"),
    ]
    command += [str(tiny_model), "--output_dir", str(folder), "--serve_options", '{"tensor_parallel_size": 2}']
    environment = cluster.environment | {"CLUSTER_ENV": str(cluster_env)}
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    try:
        try:
            wait_until(address.exists, "the address")
        except AssertionError as error:
            raise AssertionError("".join(each.read_text() for each in [log, *folder.glob("*.log")])) from error
        url, key = address.read_text().strip(), (folder / "key").read_text().strip()
        assert url.startswith("http://n1:")
        assert sorted(vllm.read_text().splitlines()) == ["n1: rank 0 of 2 at n1", "n2: rank 1 of 2 at n1, headless"]
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(ask, url, key)
            time.sleep(1)
            # What Slurm sends for --signal=B:TERM@90.
            cluster.run("scancel", "--batch", "--signal=TERM", job)
            wait_until(lambda: not address.exists(), "the address to go away")
            assert not reply.done()
            assert reply.result()["choices"]
        wait_until(lambda: cluster.show(job)["JobState"] not in ("RUNNING", "COMPLETING"), "the job's end", 30)
        assert cluster.show(job)["JobState"] == "COMPLETED", log.read_text()
    finally:
        cluster.run("scancel", "--me")


def test_the_rank_that_failed_first_on_either_node_is_the_end_of_the_jobs_output(
    cluster: Cluster, cluster_env: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib, time\n"
        f"broken = pathlib.Path({str(tmp_path / 'broken')!r})\n"
        "if os.environ['RANK'] == '1':\n"
        "    broken.touch()\n"
        "    raise RuntimeError('shard 7 is broken')\n"
        "while not broken.exists():\n"
        "    time.sleep(0.1)\n"
        # As soon as it misses its peer.
        "time.sleep(0.5)\n"
        "raise RuntimeError('connection closed by peer')\n"
    )
    log = tmp_path / "job.out"
    command = ["sbatch", "--wait", "--nodes=2", f"--output={log}", f"--chdir={ROOT}", str(SCRIPT)]
    command += ["configs/accelerate/cpu_ddp.yaml", str(script)]
    environment = cluster.environment | {"CLUSTER_ENV": str(cluster_env)}

    done = subprocess.run(command, env=environment, capture_output=True, timeout=120)

    *_, end = re.split("^rank ", log.read_text(), flags=re.MULTILINE)
    # Not 1: srun reports what became of the node that it stopped.
    assert done.returncode != 0
    assert end.startswith("1 on n2 failed first, with exit code 1; the end of its log:\n")
    assert "RuntimeError: shard 7 is broken" in end and "connection closed" not in end
    assert len(end.splitlines()) <= 42
    assert "back to the queue" not in log.read_text()
