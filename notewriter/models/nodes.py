"""Servers on the nodes of a Slurm job: the nodes and devices of each, and the commands that start it.

In a job of several nodes, `srun` starts each server as a step of its own, on one node if that holds it, otherwise on as
many as it needs. There vLLM runs without Ray: the same command on each node with its rank, of which the first answers
requests and the others are headless.
"""

import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notewriter.ground.errors import UserError

PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""vLLM's options whose product is the number of devices of a server."""

API_SERVER = "vllm.entrypoints.openai.api_server"
# The module above has no headless mode.
HEADLESS = ("vllm.entrypoints.cli.main", "serve", "--headless")

DRAIN = signal.SIGUSR1
"""The signal at which the step of a server finishes the requests in flight and ends."""


@dataclass(frozen=True)
class Place:
    """The place of a server: `nodes` of the job or, if there are none, this machine.

    `devices` are those of each node, in the form of CUDA_VISIBLE_DEVICES; None for all.
    """

    devices: str | None = None
    nodes: tuple[str, ...] = ()


def job_nodes() -> list[str]:
    """The nodes of the Slurm job that this process belongs to, if it has several; else none.

    Raises:
        UserError: Slurm's `scontrol`, which knows their names, cannot be run here.
    """
    if int(os.environ.get("SLURM_JOB_NUM_NODES") or 1) < 2:
        return []
    command = ["scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", "")]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(
            f"{shlex.join(command)}: failed ({error}); servers on several nodes need Slurm's commands where the "
            "command runs: make them available there, or submit the job with --nodes=1"
        ) from error


Replicated = tuple[Mapping[str, Any], int]
"""vLLM's options for a model, and the number of its servers."""


def own_devices(models: Sequence[Replicated]) -> bool:
    """Whether each server of these models gets devices of its own.

    A lone server chooses its devices itself. So do the servers of several models where there are fewer devices than
    that; each takes the share of the memory given by `gpu_memory_utilization`.
    """
    if any(replicas > 1 for _, replicas in models) or job_nodes():
        return True
    return len(models) > 1 and sum(size_of(options) for options, _ in models) <= _device_count()


def size_of(options: Mapping[str, Any]) -> int:
    """The devices of a server with these options of vLLM.

    Raises:
        UserError: one of them is no number.
    """
    try:
        return math.prod(int(options.get(key) or 1) for key in PARALLEL)
    except (TypeError, ValueError) as error:
        raise UserError(f"serve_options: {', '.join(PARALLEL)} are whole numbers; {error}") from error


def _device_count() -> int:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if seen is not None:
        return len(list(filter(None, seen.split(","))))
    import torch  # takes seconds, and only here it is needed

    return torch.accelerator.device_count()


def places(before: Sequence[Replicated], options: Mapping[str, Any], replicas: int) -> list[Place]:
    """The places of `replicas` servers, on the devices after those of the models `before`.

    In a job of several nodes they fill one node after the other; a node without GPUs counts as one device.

    Raises:
        UserError: there are too few devices or nodes, or a server does not divide evenly among nodes.
    """
    nodes = job_nodes()
    gpus = int(os.environ.get("SLURM_GPUS_ON_NODE") or 0)
    held = max(gpus, 1) if nodes else None
    taken, starts = 0, list[int]()
    for each, count in [*before, (options, replicas)]:
        starts = []
        for _ in range(count):
            starts.append(_first_device(taken, size_of(each), held))
            taken = starts[-1] + size_of(each)
    size = size_of(options)
    if held is None:
        return [Place(visible_devices(start, size)) for start in starts]
    if size > held and size % held:
        raise UserError(
            f"serve_options: a server of {size} devices ({' x '.join(PARALLEL)}) does not divide among nodes "
            f"of {held}; choose a multiple of {held}"
        )
    if (needed := math.ceil(taken / held)) > len(nodes):
        raise UserError(
            f"replicas: {replicas} servers of {size} devices need {needed} nodes of {held} but the job has "
            f"{len(nodes)}; submit it with --nodes={needed}, or lower replicas"
        )
    result = []
    for start in starts:
        node, slot = divmod(start, held)
        span = max(size // held, 1)
        devices = ",".join(map(str, range(slot, slot + size))) if gpus and span == 1 else None
        result.append(Place(devices, tuple(nodes[node : node + span])))
    return result


def _first_device(taken: int, size: int, held: int | None) -> int:
    """The first device of a server that follows `taken` ones: within a node of `held` devices, or on whole nodes."""
    if held is None:
        return math.ceil(taken / size) * size
    node, slot = divmod(taken, held)
    slot = math.ceil(slot / size) * size
    return node * held + slot if slot + size <= held else math.ceil(taken / held) * held


def visible_devices(first: int, count: int) -> str:
    """`count` of the devices visible to this process, starting at `first`, in the form of CUDA_VISIBLE_DEVICES.

    Raises:
        UserError: CUDA_VISIBLE_DEVICES lists too few.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = seen.split(",") if seen else [str(number) for number in range(first + count)]
    if first + count > len(names):
        raise UserError(
            f"replicas: {first + count} devices are needed but CUDA_VISIBLE_DEVICES lists {len(names)}; lower "
            "--replicas, or list more devices"
        )
    return ",".join(names[first : first + count])


def start_command(place: Place, arguments: Sequence[str], port: int) -> list[str]:
    """The command that starts vLLM with these arguments on a node or on each of several, which meet at `port`."""
    if not place.nodes:
        # The module, not the `vllm` command, which cannot find its metadata in the CPU package.
        return [sys.executable, "-m", API_SERVER, *arguments]
    count = str(len(place.nodes))
    step = ["srun", "--overlap", "--export=ALL", "--nodes", count, "--ntasks", count, "--ntasks-per-node=1"]
    # --wait: once one node has ended, the others have so many seconds.
    step += ["--kill-on-bad-exit=1", "--wait=5", "--nodelist", ",".join(place.nodes)]
    step += ["--label"] if len(place.nodes) > 1 else []
    if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):
        # Since Slurm 22.05 a step does not inherit it.
        step.append(f"--cpus-per-task={cpus}")
    devices = place.devices or "all"
    # The module's own process: only there is known which node it is on and what its devices are called.
    ours = [sys.executable, "-m", "notewriter.models.nodes", ",".join(place.nodes), devices, str(port)]
    return [*step, *ours, *arguments]


def rank_command(nodes: Sequence[str], node: str, port: int, arguments: Sequence[str]) -> list[str]:
    """vLLM's command on `node`, one of the `nodes` of a server, which meet at `port` of the first."""
    rank = nodes.index(node)
    if len(nodes) > 1:
        # Before the last of the arguments, which no other may override.
        own = ["--nnodes", str(len(nodes)), "--node-rank", str(rank)]
        arguments = [*own, "--master-addr", nodes[0], "--master-port", str(port), *arguments]
    return [sys.executable, "-m", *((API_SERVER,) if rank == 0 else HEADLESS), *arguments]


def main(argv: Sequence[str]) -> None:
    """Run vLLM on this node of a step: `NODES DEVICES PORT` and vLLM's arguments."""
    listed, devices, port, *arguments = argv
    command = rank_command(listed.split(","), os.environ["SLURMD_NODENAME"], int(port), arguments)
    if devices != "all":
        numbers = [int(number) for number in devices.split(",")]
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(numbers[0], len(numbers))
    # It reaches all processes of the step. vLLM ends at SIGTERM, and the nodes without the API server are needed until
    # requests in flight are finished; srun ends them then.
    signal.signal(DRAIN, signal.SIG_IGN)
    if command[2] != API_SERVER:
        os.execv(command[0], command)
    with subprocess.Popen(command) as vllm:
        signal.signal(DRAIN, lambda number, frame: vllm.terminate())
        code = vllm.wait()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(sys.argv[1:])
