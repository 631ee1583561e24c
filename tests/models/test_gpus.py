"""The GPUs that nvidia-smi lists."""

import nvidia_smi
import pytest

from notewriter.models import gpus
from notewriter.models.gpus import GPU, visible_gpus


def test_each_gpu_has_its_name_its_memory_and_its_driver(tmp_path, monkeypatch):
    nvidia_smi.install(monkeypatch, tmp_path, nvidia_smi.A100)
    assert visible_gpus() == [GPU("NVIDIA A100-SXM4-80GB", 81920 << 20, 81037 << 20, "580.65.06", "8.0")]


def test_a_gpu_that_does_not_tell_its_memory_has_none(tmp_path, monkeypatch):
    nvidia_smi.install(monkeypatch, tmp_path, "NVIDIA GB10, [N/A], [N/A], 580.95.05, 12.1")
    assert (visible_gpus()[0].memory, visible_gpus()[0].name) == (0, "NVIDIA GB10")


@pytest.mark.parametrize(
    ("seen", "names"),
    [
        ("1", ["NVIDIA GeForce RTX 4090"]),
        ("1,0", ["NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB"]),
        ("GPU-0f", ["NVIDIA A100-SXM4-80GB"]),
        ("", []),
        ("-1", []),
    ],
)
def test_only_the_gpus_that_programs_may_see_count(tmp_path, monkeypatch, seen, names):
    nvidia_smi.install(monkeypatch, tmp_path, nvidia_smi.A100, nvidia_smi.RTX_4090)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert [gpu.name for gpu in visible_gpus()] == names


def test_a_slice_of_a_gpu_is_one_of_unknown_memory(tmp_path, monkeypatch):
    nvidia_smi.install(monkeypatch, tmp_path, nvidia_smi.A100)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-c7f8,MIG-d3e9")
    assert [(gpu.name, gpu.memory) for gpu in visible_gpus()] == [("NVIDIA A100-SXM4-80GB", 0)] * 2


def test_without_a_driver_or_its_program_there_are_none(tmp_path, monkeypatch):
    nvidia_smi.install(monkeypatch, tmp_path)
    assert visible_gpus() == []
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert visible_gpus() == []


def test_a_driver_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    nvidia_smi.install(monkeypatch, tmp_path, nvidia_smi.A100)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(gpus, "PATIENCE", 0.2)
    assert visible_gpus() == []
