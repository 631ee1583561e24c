"""The doctor's page and its exit code, on machines that are described and not had."""

import json
import os

import nvidia_smi
import pytest

from notewriter.doctor import doctor
from notewriter.doctor.machine import Finding

TORCH = {"version": "2.13.0", "cuda": "13.0", "gpus": 1, "relative_error": 5e-3}
HEALTHY = {
    "torch": TORCH,
    "vllm": {"version": "0.32.0", "device": "cuda"},
    "disk": {"kind": "ext4", "shared": False, "free": 500 << 30, "bytes_per_second": 9e8},
}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Make this a machine with an A100 where the probes find what is healthy, but for `changes`."""

    def make(*gpus, **changes):
        nvidia_smi.install(monkeypatch, tmp_path / "bin", *(gpus or [nvidia_smi.A100]))
        monkeypatch.setattr(doctor, "probe", lambda name, patience, *arguments: (HEALTHY | changes)[name])
        monkeypatch.setattr(doctor, "runs_on_cpu", lambda: False)
        monkeypatch.setattr(doctor.machine, "packages", lambda: Finding("packages", "ok", "all"))

    return make


@pytest.fixture
def run(capsys):
    """Run the command; returns its exit code and what it printed."""

    def command(*argv):
        code = 0
        try:
            doctor.main(list(argv))
        except SystemExit as end:
            code = end.code
        return code, capsys.readouterr().out

    return command


def test_a_machine_that_is_ready_is_a_page_without_a_complaint(machine, run):
    machine()
    code, out = run()
    assert code == 0 and "nothing wrong" in out
    for line in ("A100", "580.65.06 runs CUDA 13.0", "sees 1 of 1 GPUs", "serves on cuda", "error of a forward pass"):
        assert line in out
    assert len(out.splitlines()) < 20


@pytest.mark.parametrize(
    ("changes", "line", "remedy"),
    [
        ({"torch": TORCH | {"cuda": None, "gpus": 0}}, "for the CPU, beside a GPU", "make setup MACHINE=gpu"),
        ({"torch": TORCH | {"gpus": 0}}, "sees 0 of 1 GPUs", "nvidia-smi"),
        ({"torch": {"error": "crashed (signal 11)"}}, "crashed (signal 11)", "make clean"),
        ({"torch": TORCH | {"relative_error": 0.3}}, "forward pass in bfloat16 3e-01", "make setup"),
        ({"torch": TORCH | {"relative_error": float("nan")}}, "forward pass in bfloat16 nan", "make setup"),
        ({"vllm": {"error": "ModuleNotFoundError: No module named 'vllm'"}}, "No module", "pip install -e '.[gpu]'"),
        ({"vllm": {"version": "0.32.0", "device": "cpu"}}, "serves on cpu", "make setup"),
        ({"disk": HEALTHY["disk"] | {"free": 1 << 30}}, "1 GiB free", "free some space"),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy_and_ends_with_1(machine, run, changes, line, remedy):
    machine(**changes)
    code, out = run()
    assert code == 1
    wrong = out[out.index("WRONG") :].splitlines()
    assert line in wrong[0] and remedy in wrong[1]
    assert out.count("WRONG") == 1


def test_a_disk_that_machines_share_is_noted(machine, run):
    machine(disk=HEALTHY["disk"] | {"kind": "nfs4", "shared": True})
    code, out = run()
    assert code == 0
    assert any(each.startswith("note") and "nfs4, shared between machines" in each for each in out.splitlines())


def test_a_driver_that_is_too_old_is_found(machine, run):
    machine(nvidia_smi.T4)
    code, out = run()
    assert code == 1 and "535.161.08; torch is built for CUDA 13.0, which needs 580 or newer" in out


def test_packages_for_the_cpu_beside_a_gpu_are_noted(machine, run, monkeypatch):
    machine(torch=TORCH | {"cuda": None}, vllm={"version": "0.32.0", "device": "cpu"})
    monkeypatch.setattr(doctor, "runs_on_cpu", lambda: True)
    code, out = run()
    assert code == 0 and "to use it: make clean, then make setup MACHINE=gpu" in out


def test_neither_a_secret_nor_a_name_of_user_or_machine_is_in_it(machine, run, monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setenv("SOME_API_KEY", "sk-verysecret")
    monkeypatch.setattr(doctor.socket, "gethostname", lambda: "node7")
    machine(vllm={"error": "OSError: /home/alice/x and /scratch/alice/y on node7 with sk-verysecret"})
    code, out = run("--json", "true")
    (found,) = (each["found"] for each in json.loads(out) if each["name"] == "vLLM")
    assert code == 1 and found == "OSError: ~/x and /scratch/user/y on host with ***"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("PermissionError: '/scratch/alice'", "PermissionError: '/scratch/user'"),
        ("node7:3120 NCCL WARN; node7.cluster.example", "host:3120 NCCL WARN; host"),
        ("no answer from https://bob:hunter2@proxy.example:3128", "no answer from https://***@proxy.example:3128"),
    ],
)
def test_names_are_left_out_in_every_form(machine, run, monkeypatch, error, shown):
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setattr(doctor.socket, "gethostname", lambda: "node7.cluster.example")
    machine(vllm={"error": error})
    _, out = run("--json", "true")
    assert [each["found"] for each in json.loads(out) if each["name"] == "vLLM"] == [shown]


def test_json_has_every_finding(machine, run):
    machine()
    code, out = run("--json", "true")
    assert code == 0
    assert all(each.keys() == {"name", "state", "found", "remedy"} for each in json.loads(out))


@pytest.mark.integration
def test_this_machine_has_a_page(run, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    _, out = run("--patience", "300")
    assert "models in" in out and "vLLM" in out and os.uname().nodename not in out
