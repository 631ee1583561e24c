"""Which nodes and devices servers get in a Slurm job, and what is started on each."""

import contextlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from notewriter.ground.errors import UserError
from notewriter.models import nodes
from notewriter.models.nodes import Place, own_devices, places, rank_command, start_command


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Pretend to be in a job: `job(["n1", "n2"], gpus=8)`."""
    program = tmp_path / "scontrol"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def start(names, gpus=0):
        program.write_text(f"#!/bin/sh\n[ \"$*\" = 'show hostnames LIST' ] && printf '%s\\n' {' '.join(names)}\n")
        program.chmod(0o755)
        monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(len(names)))
        monkeypatch.setenv("SLURM_JOB_NODELIST", "LIST")
        monkeypatch.setenv("SLURM_GPUS_ON_NODE", str(gpus))

    return start


@pytest.mark.parametrize(
    ("names", "gpus", "options", "replicas", "expected"),
    [
        pytest.param([], 0, {"tensor_parallel_size": 2}, 2, [Place("0,1"), Place("2,3")], id="no job"),
        pytest.param(["n1"], 8, {}, 2, [Place("0"), Place("1")], id="one node"),
        pytest.param(
            ["n1", "n2"],
            8,
            {"tensor_parallel_size": 4},
            4,
            [
                Place("0,1,2,3", ("n1",)),
                Place("4,5,6,7", ("n1",)),
                Place("0,1,2,3", ("n2",)),
                Place("4,5,6,7", ("n2",)),
            ],
            id="two on each node",
        ),
        pytest.param(
            ["n1", "n2"],
            8,
            {"tensor_parallel_size": 3},
            3,
            [Place("0,1,2", ("n1",)), Place("3,4,5", ("n1",)), Place("0,1,2", ("n2",))],
            id="what is left of a node is not joined to another",
        ),
        pytest.param(
            ["n1", "n2", "n3", "n4"],
            8,
            {"tensor_parallel_size": 8, "pipeline_parallel_size": 2},
            2,
            [Place(None, ("n1", "n2")), Place(None, ("n3", "n4"))],
            id="larger than a node",
        ),
        pytest.param(["n1", "n2"], 0, {}, 2, [Place(None, ("n1",)), Place(None, ("n2",))], id="without GPUs"),
        pytest.param(["n1", "n2"], 1, {"data_parallel_size": 2}, 1, [Place(None, ("n1", "n2"))], id="data parallel"),
    ],
)
def test_servers_fill_one_node_after_the_other(job, names, gpus, options, replicas, expected):
    if names:
        job(names, gpus)
    assert places([], options, replicas) == expected


def test_a_second_model_goes_where_the_first_ends(job):
    job(["n1", "n2"], 2)
    assert places([({}, 2)], {}, 2) == [Place("0", ("n2",)), Place("1", ("n2",))]


TWO, THREE, SIXTEEN = ({"tensor_parallel_size": size} for size in (2, 3, 16))


@pytest.mark.parametrize(
    ("models", "options", "expected"),
    [
        ([], {}, Place("0", ("n1",))),
        ([(TWO, 2)], {}, Place("4", ("n1",))),
        # Two servers of three fill a node of eight, as far as they can.
        ([(THREE, 3)], {}, Place("3", ("n2",))),
        ([(THREE, 2), ({}, 1)], TWO, Place("0,1", ("n2",))),
        ([({}, 1)], SIXTEEN, Place(None, ("n2", "n3"))),
        ([(SIXTEEN, 1)], {}, Place("0", ("n3",))),
    ],
)
def test_models_of_different_sizes_share_no_device(job, models, options, expected):
    job(["n1", "n2", "n3", "n4"], 8)
    assert places(models, options, 1) == [expected]


def test_models_of_different_sizes_share_no_device_of_one_machine(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join("abcdefgh"))
    assert places([({}, 3)], TWO, 2) == [Place("e,f"), Place("g,h")]
    assert own_devices([({}, 1), (TWO, 1)]) and not own_devices([(TWO, 1), ({"tensor_parallel_size": 7}, 1)])


@pytest.mark.parametrize(
    ("options", "replicas", "message"),
    [
        ({}, 17, "replicas: 17 servers of 1 devices need 3 nodes of 8 but the job has 2; submit it with --nodes=3"),
        ({"tensor_parallel_size": 32}, 1, "replicas: 1 servers of 32 devices need 4 nodes of 8 but the job has 2"),
        ({"tensor_parallel_size": 12}, 1, "a server of 12 devices .* does not divide among nodes of 8"),
    ],
)
def test_what_the_job_cannot_hold_is_refused(job, options, replicas, message):
    job(["n1", "n2"], 8)
    with pytest.raises(UserError, match=message):
        places([], options, replicas)


@pytest.mark.parametrize("size", ["two", [2]])
def test_a_size_that_is_no_number_is_named(size):
    with pytest.raises(UserError, match=r"serve_options: tensor_parallel_size, .* are whole numbers"):
        nodes.size_of({"tensor_parallel_size": size})


def test_without_slurms_commands_the_remedy_is_named(job, monkeypatch, tmp_path):
    job(["n1", "n2"])
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"scontrol show hostnames LIST: failed .* submit the job with --nodes=1"):
        places([], {}, 1)


@pytest.fixture
def started(monkeypatch):
    """The commands that would become vLLM on the nodes of a step."""
    commands = []

    def execv(program, command):
        commands.append(command)
        raise SystemExit(0)

    @contextlib.contextmanager
    def popen(command):
        commands.append(command)
        yield SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(nodes.os, "execv", execv)
    monkeypatch.setattr(nodes.subprocess, "Popen", popen)
    monkeypatch.setattr(nodes.signal, "signal", lambda number, handler: None)
    return commands


def run(step):
    """What `srun` starts on a node."""
    with pytest.raises(SystemExit) as ended:
        nodes.main(step[step.index("notewriter.models.nodes") + 1 :])
    assert ended.value.code == 0


def test_a_server_over_two_nodes_is_one_step_and_each_node_knows_its_rank(monkeypatch, started):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "16")
    place, arguments = Place(None, ("n1", "n2")), ["--model", "teacher", "--no-trust-remote-code"]

    step = start_command(place, arguments, 29600)

    assert step[:2] == ["srun", "--overlap"]
    assert {"--cpus-per-task=16", "--kill-on-bad-exit=1", "--label"} <= set(step)
    assert step[step.index("--nodelist") + 1] == "n1,n2"
    for node in place.nodes:
        monkeypatch.setenv("SLURMD_NODENAME", node)
        run(step)
    meeting = ["--master-addr", "n1", "--master-port", "29600", *arguments]
    head = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    other = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "--headless"]
    assert started == [
        [*head, "--nnodes", "2", "--node-rank", "0", *meeting],
        [*other, "--nnodes", "2", "--node-rank", "1", *meeting],
    ]


def test_a_server_within_a_node_sees_its_devices_as_the_node_calls_them(monkeypatch, started):
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    # Slurm lent the job the upper half of the node.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    step = start_command(Place("2,3", ("n2",)), ["--model", "judge"], 29600)

    run(step)

    assert nodes.os.environ["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert started == [[sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "judge"]]


def test_vllm_has_the_options_that_nodes_are_given():
    found = importlib.util.find_spec("vllm")
    if not (found and found.origin):
        pytest.skip("vLLM is not installed")
    # Importing them takes long.
    folder = Path(found.origin).parent
    known = (folder / "engine/arg_utils.py").read_text() + (folder / "entrypoints/launchers/cli_args.py").read_text()
    command = rank_command(["n1", "n2"], "n2", 29600, [])
    for option in (word for word in command if word.startswith("--")):
        assert f'"{option}"' in known or f"{option[2:].replace('-', '_')}: " in known, option
    assert all(f"    {option}: int" in known for option in nodes.PARALLEL)
