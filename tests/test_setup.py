"""`make setup` without running it: what it would install on which machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GPU = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)"
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def make(tmp_path):
    """Run make in a folder without .venv; `smi` is what nvidia-smi prints there."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "constraints-gpu.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()

    def run(*arguments, smi=NO_DRIVER):
        program = tmp_path / "bin" / "nvidia-smi"
        program.write_text(f'#!/bin/sh\necho "{smi}"\n')
        program.chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        environment["PATH"] = f"{program.parent}:/usr/bin:/bin"
        return subprocess.run(["make", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run


def kinds(done):
    """The builds, files of versions and extras in the commands of a dry run."""
    names = ("torch==2.13.0+cpu", "torch==2.13.0'", "constraints.txt", "constraints-gpu.txt", "[cpu,", "[gpu,")
    return {name for name in names if name in done.stdout}


CPU_SETUP = {"torch==2.13.0+cpu", "constraints.txt", "[cpu,"}
GPU_SETUP = {"torch==2.13.0'", "constraints-gpu.txt", "[gpu,"}


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="elsewhere there is one build of torch")
def test_a_machine_gets_what_it_has(make):
    assert kinds(make("-n", "setup")) == CPU_SETUP
    assert kinds(make("-n", "setup", smi=GPU)) == GPU_SETUP
    assert kinds(make("-n", "setup", "MACHINE=cpu", smi=GPU)) == CPU_SETUP
    assert kinds(make("-n", "setup", "MACHINE=gpu")) == GPU_SETUP


def test_help_says_for_which_machine_setup_is(make):
    assert "for use on the CPU (PYTHON=" in make("help").stdout
    assert "for use on the GPU (PYTHON=" in make("help", smi=GPU).stdout


def test_a_virtual_environment_stays_what_it_was_made_for(make, tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.machine").write_text("gpu\n")
    assert "[gpu," in make("-n", "setup").stdout
    refused = make("-n", "setup", "MACHINE=cpu")
    assert refused.returncode != 0
    assert "run make clean" in refused.stderr


def test_another_kind_of_machine_is_refused(make):
    assert "MACHINE is cpu or gpu" in make("-n", "setup", "MACHINE=tpu").stderr
