"""A Slurm of two nodes, both of them this machine, with daemons of its own."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

HOSTS = Path("/etc/hosts")
NODES = ("n1", "n2")
CPUS, GPUS = 4, 2
"""Of each node, as Slurm is told: it gives no job more than it asks for."""

# Debian keeps daemons where only an administrator's PATH looks.
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.5)


@contextlib.contextmanager
def _node_names() -> Iterator[None]:
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

    def runs_on(self, name: str) -> set[psutil.Process]:
        """The processes of jobs on a node, with the daemons of their job steps."""
        found = set()
        for process in psutil.process_iter():
            # One that has ended in the meantime is none of them.
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                same = environment.get("SLURM_CONF") == self.environment["SLURM_CONF"]
                if same and environment.get("SLURMD_NODENAME") == name:
                    found |= {process, *(each for each in process.parents() if "slurmstepd" in each.name())}
        return found

    def lose(self, name: str) -> None:
        """End a node and all that runs there at once, as a power cut would."""
        self.daemons[name].kill()
        self.daemons[name].wait()
        while left := self.runs_on(name):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

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


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[Cluster]:
    """A Slurm of the nodes n1 and n2, with a partition `urgent` whose jobs preempt those of `all`.

    Jobs share nodes, and one that asks for neither CPUs nor memory gets a CPU and 100 MB, as on many clusters.

    Skips the test where Slurm is not installed or may not be started.
    """
    programs = ("sbatch", "srun", "scontrol", "slurmctld", "slurmd", "munged")
    if absent := [program for program in programs if not shutil.which(program, path=PATH)]:
        pytest.skip(f"not installed: {', '.join(absent)} (Debian packages slurm-wlm and munge)")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons are started as root")

    for name in ("state", *NODES):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    devices = [folder / f"gpu{number}" for number in range(GPUS)]
    for device in devices:
        device.touch()
    (folder / "gres.conf").write_text("".join(f"Name=gpu Type=a100 File={device}\n" for device in devices))
    host = socket.gethostname()
    nodes = "".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={CPUS} RealMemory=16384 "
        f"Gres=gpu:a100:{GPUS} State=UNKNOWN\n"
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
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
DefMemPerCPU=100
SlurmdParameters=config_overrides
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
    with _node_names():
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
