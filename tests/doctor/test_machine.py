"""What the machine is, as the doctor's page says it."""

import platform
from email.message import Message
from importlib.metadata import PackageNotFoundError

import pytest

from notewriter.doctor import machine
from notewriter.models.gpus import GPU


def a_gpu(name="NVIDIA A100-SXM4-80GB", gib=80, free=80, driver="580.65.06", capability="8.0"):
    return GPU(name, gib << 30, free << 30, driver, capability)


def test_this_machine_has_a_system_a_processor_and_a_memory():
    system, cpu, memory, gpu, _ = machine.describe([])
    assert platform.python_version() in system.found
    assert "models in bfloat16" in cpu.found or "models in float32" in cpu.found
    assert "GiB" in memory.found
    assert (gpu.state, gpu.name) == ("note", "GPU")
    assert "everything runs on the CPU" in gpu.found


def test_every_gpu_is_a_line():
    found = machine.describe([a_gpu(), a_gpu("NVIDIA L4", 23, 23, capability="8.9")])[3:5]
    assert [each.found.split(",")[0] for each in found] == ["NVIDIA A100-SXM4-80GB", "NVIDIA L4"]
    assert "80 GiB, 80 free, driver 580.65.06, compute capability 8.0" in found[0].found


def test_a_gpu_that_others_use_is_noted_with_the_share_to_ask_for():
    found = machine.gpu(a_gpu(free=60))
    assert found.state == "note" and "gpu_memory_utilization" in found.remedy


@pytest.mark.parametrize(
    ("driver", "cuda", "state"),
    [
        ("580.65.06", "13.0", "ok"),
        ("575.57.08", "13.0", "wrong"),
        ("535.161.08", "12.8", "ok"),
        ("600.1", "14.0", "ok"),
    ],
)
def test_a_driver_has_to_be_as_new_as_the_cuda_that_torch_is_built_for(driver, cuda, state):
    assert machine.driver([a_gpu(driver=driver)], cuda).state == state


@pytest.fixture
def needs(monkeypatch):
    """Make the project need these packages, and have these installed."""

    def make(needed, installed):
        lines = [("Requires-Dist", line) for line in needed] + [("Provides-Extra", "dense")]
        known = Message()
        for name, value in lines:
            known[name] = value

        def version(name):
            if name not in installed:
                raise PackageNotFoundError(name)
            return installed[name]

        monkeypatch.setattr(machine, "metadata", lambda name: known)
        monkeypatch.setattr(machine, "version", version)

    return make


def test_what_is_missing_or_of_another_version_is_wrong(needs):
    needs(["torch>=2.11,<2.14", "trl>=1.16", "peft"], {"torch": "2.14.0", "peft": "0.21"})
    found = machine.packages()
    assert (found.state, found.found) == ("wrong", "torch 2.14.0 is not <2.14,>=2.11; trl is missing")
    assert "make setup" in found.remedy


def test_an_extra_may_be_missing_and_is_of_the_version_that_the_project_takes(needs):
    needs(["peft", 'faiss-cpu>=1.15; extra == "dense"'], {"peft": "1"})
    assert machine.packages().state == "ok"
    needs(["peft", 'faiss-cpu>=1.15; extra == "dense"'], {"peft": "1", "faiss-cpu": "1.9"})
    assert machine.packages().found == "faiss-cpu 1.9 is not >=1.15"


def test_a_requirement_of_another_python_is_not_missed(needs):
    needs(['tomli; python_version < "3"'], {})
    assert machine.packages().state == "ok"
