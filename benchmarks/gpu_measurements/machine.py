"""What the measurements run on."""

import contextlib
import inspect
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch
from torch.nn.attention.varlen import varlen_attn

from .results import Record

VERSIONS = (
    "torch",
    "triton",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "pyarrow",
    "numpy",
    "flash-attn",
)


@dataclass(frozen=True)
class Machine:
    """What the measurements run on, and the user's paths."""

    device: torch.device
    toy: bool
    model: str | None
    pairs: str | None
    steps: int

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def reset_peak(self) -> None:
        """Forget the highest use of memory so far."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int | None:
        """The most bytes of tensors since then; None on the CPU, where PyTorch does not count them."""
        return torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None


def header(machine: Machine, command: str) -> Record:
    """The first line of the results: machine, versions and command."""
    versions = {"python": platform.python_version()}
    for package in VERSIONS:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    record: Record = {"device": platform.processor() or platform.machine(), "versions": versions, "command": command}
    # It grew options from release to release.
    record["varlen_attn"] = list(inspect.signature(varlen_attn).parameters)
    if machine.device.type == "cuda":
        properties = torch.cuda.get_device_properties(machine.device)
        record |= {
            "device": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
        }
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            record["driver"] = subprocess.check_output(query, text=True).split()[0]
    return record
