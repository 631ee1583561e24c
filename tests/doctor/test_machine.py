"""What the machine is, as the doctor's page says it."""

import platform

import pytest

from notewriter.doctor import machine
from notewriter.models.gpus import GPU


def a_gpu(name="NVIDIA A100-SXM4-80GB", gib=80, free=80, driver="580.65.06", capability="8.0"):
    return GPU(name, gib << 30, free << 30, driver, capability)


def test_this_machine_has_a_system_a_processor_and_a_memory():
    system, cpu, memory, gpu = machine.describe([])
    assert platform.python_version() in system.found
    assert "models in bfloat16" in cpu.found or "models in float32" in cpu.found
    assert "GiB" in memory.found
    assert (gpu.state, gpu.name) == ("note", "GPU")
    assert "everything runs on the CPU" in gpu.found


def test_every_gpu_is_a_line():
    found = machine.describe([a_gpu(), a_gpu("NVIDIA L4", 23, 23, capability="8.9")])[3:]
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


@pytest.mark.parametrize(("version", "state"), [("2.28", "note"), ("2.31", "ok"), ("2.36", "ok")])
def test_an_old_c_library_is_noted(monkeypatch, version, state):
    monkeypatch.setattr(machine.platform, "libc_ver", lambda: ("glibc", version))
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    assert machine.system().state == state
