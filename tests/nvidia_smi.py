"""A stand-in for `nvidia-smi` and what it prints, for machines without a GPU."""

import os
from pathlib import Path

import pytest

A100 = "NVIDIA A100-SXM4-80GB, 81920, 81037, 580.65.06, 8.0"
RTX_4090 = "NVIDIA GeForce RTX 4090, 24564, 24100, 580.65.06, 8.9"
T4 = "Tesla T4, 15360, 14900, 535.161.08, 7.5"


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *gpus: str) -> None:
    """Put a program of that name in front of PATH that lists these GPUs; without GPUs it fails as without a driver."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    rows = "".join(f"{number}, GPU-{number}f0e, {gpu}\n" for number, gpu in enumerate(gpus))
    failing = "echo NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.; exit 9"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{rows}END\n" if gpus else f"#!/bin/sh\n{failing}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
