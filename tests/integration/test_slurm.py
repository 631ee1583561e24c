"""Jobs and pipelines on a Slurm of two nodes, both of them this machine."""

import contextlib
import getpass
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from notewriter.pipelines import slurm
from notewriter.pipelines.pipeline import Pipeline, read_pipeline

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "slurm/train.sbatch"
HOSTS = Path("/etc/hosts")
NODES = ("n1", "n2")
pytestmark = pytest.mark.integration

# Debian keeps daemons where only an administrator's PATH looks.
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def node_names() -> Iterator[None]:
    """Names of the two nodes that resolve to this machine; /etc/hosts is as before afterwards."""

    def resolves(name: str) -> bool:
        try:
            return bool(socket.gethostbyname(name))
        except OSError:
            return False

    missing = [name for name in NODES if not resolves(name)]
    if not missing:
        yield
        return
    if not os.access(HOSTS, os.W_OK):
        pytest.skip(f"the node names {', '.join(missing)} do not resolve, and {HOSTS} is not writable")
    before = HOSTS.read_text()
    lines = "".join(f"127.0.0.1 {name}\n" for name in missing)
    HOSTS.write_text(before + ("" if before.endswith("\n") else "\n") + lines)
    try:
        yield
    finally:
        # What somebody else added in the meantime stays.
        HOSTS.write_text(HOSTS.read_text().replace(lines, ""))


@dataclass
class Cluster:
    """A Slurm with daemons of its own; `environment` is what its commands need."""

    folder: Path
    environment: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: list[str]) -> None:
        with open(self.folder / "daemons.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def start_node(self, name: str) -> None:
        self.start(name, ["slurmd", "-D", "-N", name])

    def lose(self, name: str) -> None:
        """End a node and all that runs there at once, as a power cut would."""
        self.daemons[name].kill()
        self.daemons[name].wait()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                same = environment.get("SLURM_CONF") == self.environment["SLURM_CONF"]
                if same and environment.get("SLURMD_NODENAME") == name:
                    above = [each for each in process.parents() if "slurmstepd" in each.name()]
                    for each in [*above, process]:
                        each.kill()

    def states(self) -> list[str]:
        """The states of the nodes."""
        done = subprocess.run(["sinfo", "-hN", "-p", "all", "-o", "%T"], env=self.environment, capture_output=True)
        return done.stdout.decode().split()

    def run(self, *command: str) -> str:
        """What a command of Slurm prints."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout.strip()

    def show(self, job: str) -> dict[str, str]:
        """What Slurm knows of a job, by name."""
        return dict(
            part.split("=", 1) for part in self.run("scontrol", "show", "job", "-o", job).split() if "=" in part
        )


@pytest.fixture(scope="module")
def cluster(node_names: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm of the nodes n1 and n2, with a partition `urgent` whose jobs preempt those of `all`."""
    programs = ("sbatch", "srun", "scontrol", "slurmctld", "slurmd", "munged")
    if absent := [program for program in programs if not shutil.which(program, path=PATH)]:
        pytest.skip(f"not installed: {', '.join(absent)} (Debian packages slurm-wlm and munge)")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons are started as root")

    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", *NODES):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    host = socket.gethostname()
    nodes = "".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1 State=UNKNOWN\n"
        for name in NODES
    )
    (folder / "slurm.conf").write_text(
        f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser={getpass.getuser()}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
SlurmdTimeout=10
SchedulerParameters=sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=120
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
"""
    )
    environment = os.environ | {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    # Under a Slurm job these would be taken for the options of ours.
    environment = {key: value for key, value in environment.items() if not key.startswith(("SBATCH_", "SLURM_JOB"))}
    cluster = Cluster(folder, environment)
    munge = ["munged", "--foreground", "--force", "--key-file", f"{folder}/munge.key"]
    munge += ["--socket", f"{folder}/munge.socket", "--pid-file", f"{folder}/munge.pid"]
    munge += ["--seed-file", f"{folder}/munge.seed", "--log-file", f"{folder}/munge.log"]
    try:
        cluster.start("munged", munge)
        wait_until((folder / "munge.socket").exists, "munged")
        cluster.start("slurmctld", ["slurmctld", "-D", "-i"])
        for name in NODES:
            cluster.start_node(name)
        try:
            wait_until(lambda: cluster.states() == ["idle"] * len(NODES), "both nodes idle")
        except AssertionError as error:
            raise AssertionError((folder / "daemons.log").read_text()[-4000:]) from error
        yield cluster
    finally:
        for daemon in reversed(cluster.daemons.values()):
            daemon.terminate()
        for daemon in cluster.daemons.values():
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                # It waits for job steps that a failed test has left.
                daemon.kill()


@pytest.fixture
def cluster_env(tmp_path: Path) -> Path:
    """The settings of this machine, one process a node."""
    file = tmp_path / "cluster.env"
    file.write_text(
        f"PROCESSES_PER_NODE=1\nVENV={sys.prefix}\nRENDEZVOUS_PORT={free_port()}\nexport HF_HUB_OFFLINE=1\n"
        f"export HF_DATASETS_CACHE={tmp_path}/cache\nexport OMP_NUM_THREADS=1\nLOGS={tmp_path}/ranks\n"
    )
    return file


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["ddp.yaml", "train.py"], {"SLURM_JOB_ID": ""}, "this is a job script; submit it"),
        (["ddp.yaml"], {}, "usage: sbatch"),
        (["nowhere.yaml", "train.py"], {}, "nowhere.yaml: no such accelerate configuration"),
        (["ddp.yaml", "nowhere.py"], {}, "nowhere.py: no such training script"),
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


def test_a_job_whose_time_is_nearly_up_ends_its_command_and_goes_back_to_the_queue(
    cluster: Cluster, cluster_env: Path, tmp_path: Path
) -> None:
    log = tmp_path / "job.out"
    with open(cluster_env, "a") as settings:
        # What stands for a container here.
        settings.write("CONTAINER='env INSIDE=one'\n")
    environment = cluster.environment | {"CLUSTER_ENV": str(cluster_env)}
    command = ["sbatch", "--parsable", f"--output={log}", f"--chdir={ROOT}", str(ROOT / "slurm/run.sbatch")]
    command += ["bash", "-c", "trap 'echo ended; exit 143' TERM; echo started in $INSIDE; while :; do sleep 0.2; done"]
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    try:
        wait_until(lambda: log.exists() and "\nstarted in one" in log.read_text(), "the command")
        # What Slurm sends for --signal=B:USR1@120.
        subprocess.run(["scancel", "--batch", "--signal=USR1", job], env=environment, check=True)
        wait_until(lambda: "ended" in log.read_text().split("back to the queue")[-1], "the command's end")

        def restarts() -> str:
            show = ["scontrol", "show", "job", "--oneliner", job]
            return subprocess.run(show, env=environment, capture_output=True, text=True).stdout

        wait_until(lambda: "Restarts=1" in restarts() and "JobState=PENDING" in restarts(), "the queue")
    finally:
        subprocess.run(["scancel", job], env=environment, capture_output=True)


@pytest.mark.parametrize("script", ["run.sbatch", "serve.sbatch"])
@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["true"], {"SLURM_JOB_ID": ""}, "this is a job script; submit it"),
        ([], {}, "usage: sbatch"),
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


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process submits to the cluster, from the project's folder."""
    monkeypatch.chdir(ROOT)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def states(pipeline: Pipeline) -> dict[str, str]:
    lines = slurm.status(pipeline).splitlines()
    return {stage.title: line[len(stage.title) :].strip() for stage, line in zip(pipeline.stages, lines, strict=True)}


def run_to_the_end(pipeline: Pipeline, cluster_env: Path, seconds: float = 240) -> dict[str, str]:
    """Submit what is missing and wait until no job of the pipeline is left; returns the states."""
    slurm.submit(pipeline, cluster_env)
    jobs = set(itertools.chain.from_iterable(json.loads((pipeline.logs / slurm.JOBS).read_text()).values()))
    try:
        wait_until(lambda: not jobs & slurm._queue().keys(), "the pipeline's jobs", seconds)
    finally:
        subprocess.run(["scancel", *jobs], capture_output=True)
    return states(pipeline)


def test_a_pipeline_runs_as_jobs_and_what_failed_is_submitted_again(
    here: None, cluster_env: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    stages = [
        {
            "title": "generate a world",
            "command": "notewriter world --output_dir $output_dir/world --hops 2",
            "result": "$output_dir/world/test/questions.jsonl",
        },
        {
            "title": "count",
            # The second shard needs a file that is not there at first.
            "command": "bash -c 'test $shard != 2 || cat $output_dir/missing && touch $output_dir/part-$shard'",
            "result": "$output_dir/part-$shard",
            "shards": 3,
        },
        {
            "title": "train",
            "command": "bash -c 'mkdir $output_dir/model && echo $$SLURM_JOB_NUM_NODES > $output_dir/model/nodes'",
            "result": "$output_dir/model/nodes",
            "needs": {"nodes": 2},
        },
        {"title": "look", "command": "ls $output_dir/model", "after": ["train"]},
    ]
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"output_dir": str(run), "stages": stages}))
    pipeline = read_pipeline(file)

    first = run_to_the_end(pipeline, cluster_env)
    assert first["generate a world"].startswith("finished")
    assert "(2 of 3 shards have their result)" in first["count"] and "02-count-2.log" in first["count"]
    assert first["train"].startswith("cancelled before it started")
    assert "No such file" in (run / "logs/02-count-2.log").read_text()

    (run / "missing").touch()
    shown = slurm.submit(pipeline, cluster_env, dry_run=True)
    assert "# generate a world: finished" in shown and "--array=2 " in shown
    second = run_to_the_end(pipeline, cluster_env)
    assert second["train"].startswith("finished"), (run / "logs/03-train.log").read_text()
    assert (run / "model/nodes").read_text() == "2\n"
    assert (run / "logs/04-look.log").read_text().endswith("nodes\n")


def training(tiny_model: Path, tiny_pairs: Path, name: str, disturbed: bool = False) -> dict[str, object]:
    """A stage of a pipeline: DPO in six small steps on two nodes."""
    options = f"--model_name_or_path {tiny_model} --pairs {tiny_pairs} --output_dir $output_dir/{name}"
    options += " --total_batch_size 4 --per_device_train_batch_size 2 --max_length 64 --max_steps 6 --disable_tqdm true"
    options += " --learning_rate 0.001 --save_strategy no"
    return {
        "title": name,
        "command": f"{'tests/integration/signalled.py ' * disturbed}training/train_dpo.py {options}",
        "launch": "configs/accelerate/cpu_ddp.yaml",
        "result": f"$output_dir/{name}/training.json",
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
    stages = [training(tiny_model, tiny_pairs, name, name == "disturbed") for name in names]
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"output_dir": str(run), "stages": stages}))
    pipeline = read_pipeline(file)
    log = pipeline.log(pipeline.stages[1])

    def both_ranks_are_in(step: int) -> None:
        wait_until(lambda: len(list(held.glob(f"held-{step}-*"))) == 2, f"step {step}", 240)

    def let_go(step: int) -> None:
        (held / f"hold-{step}").unlink()

    def checkpoints() -> list[str]:
        return sorted(path.name for path in (run / "disturbed").glob("checkpoint-*"))

    def back_in_the_queue(times: int) -> None:
        wait_until(lambda: cluster.show(job)["Restarts"] == str(times), f"the queue for the {times}. time", 90)

    try:
        slurm.submit(pipeline, cluster_env)
        (job,) = json.loads((pipeline.logs / slurm.JOBS).read_text())["disturbed"]

        # Its time: what is left is less than the script asks to be warned of.
        both_ranks_are_in(1)
        cluster.run("scontrol", "update", f"jobid={job}", "timelimit=5")
        wait_until(lambda: "time is nearly up" in log.read_text(), "Slurm's signal", 90)
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


# What vLLM is to us: a module that serves at a port, and one that helps it on another node. At SIGTERM the first
# finishes what is in flight. Both tell where they run.
VLLM = """
import argparse, os, signal, sys, threading, time
from pathlib import Path
parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("port", "nnodes", "node-rank"):
    parser.add_argument(f"--{name}", type=int, default=0)
parser.add_argument("--master-addr")
parser.add_argument("--served-model-name")
parser.add_argument("--headless", action="store_true")
given, _ = parser.parse_known_args()
ranks = f"rank {given.node_rank} of {given.nnodes} at {given.master_addr}" if given.nnodes else "alone"
with open(os.environ["VLLM_TOLD"], "a") as told:
    told.write(f"{os.environ.get('SLURMD_NODENAME')}: {ranks}{', headless' if given.headless else ''}\\n")
if given.headless:
    time.sleep(600)
from fake_endpoint import make_server
server, known = make_server(port=given.port, delay=float(os.environ.get("VLLM_DELAY", "0")))
known.model = given.served_model_name
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(poll_interval=0.05)
server.server_close()
"""


@pytest.fixture
def vllm(cluster_env: Path, tmp_path: Path) -> Path:
    """Jobs find the stand-in in place of vLLM; gives the file in which it tells of itself."""
    for module in ("openai/api_server", "cli/main"):
        file = tmp_path / "site/vllm/entrypoints" / f"{module}.py"
        file.parent.mkdir(parents=True)
        file.write_text(VLLM)
        (file.parent / "__init__.py").touch()
    for folder in ("vllm", "vllm/entrypoints"):
        (tmp_path / "site" / folder / "__init__.py").touch()
    told = tmp_path / "told.txt"
    with open(cluster_env, "a") as settings:
        settings.write(f"export PYTHONPATH={tmp_path}/site:{ROOT}:{ROOT}/tests\nexport VLLM_TOLD={told}\n")
    return told


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
        settings.write("export VLLM_DELAY=3\n")
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
    (train,) = (stage for stage in content["stages"] if "launch" in stage)
    train |= {"launch": "$project/configs/accelerate/cpu_ddp.yaml", "needs": {"nodes": 2}}
    train["command"] += " --max_steps 2 --dtype float32 --disable_tqdm true"
    file, run = tmp_path / "quickstart.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(content))
    pipeline = read_pipeline(file, str(run), {"model_dir": str(model)})

    found = run_to_the_end(pipeline, cluster_env)

    logs = "\n".join(f"--- {log}\n{log.read_text()[-3000:]}" for log in sorted(pipeline.logs.glob("*.log")))
    assert all(state.startswith("finished") for title, state in found.items() if title != "compare"), logs
    log = (pipeline.logs / "07-train-with-dpo.log").read_text()
    assert "n1: machine 0 of 2, ranks 0 to 0" in log and "n2: machine 1 of 2, ranks 1 to 1" in log
    assert json.loads((run / "checkpoint/training.json").read_text())["hyperparameters"]["processes"] == 2
    assert "before" in (pipeline.logs / "10-compare.log").read_text()
    assert (run / "report.html").stat().st_size > 10_000
    # Pairs and two evaluations, each with a server of its own.
    assert [line.split(": ")[1] for line in vllm.read_text().splitlines()] == ["alone"] * 3


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
