"""The NVIDIA GPUs of this machine, as its driver lists them; no library of CUDA is loaded."""

import os
import subprocess
from dataclasses import dataclass, replace

PATIENCE = 20.0
"""The time limit of `nvidia-smi` in seconds: a failing driver lets it hang."""

COLUMNS = ("index", "uuid", "name", "memory.total", "memory.free", "driver_version", "compute_cap")


@dataclass(frozen=True)
class GPU:
    """A GPU: memory in bytes (0 where the driver does not say), the driver's version, and the compute capability."""

    name: str
    memory: int
    free: int
    driver: str
    capability: str


def visible_gpus() -> list[GPU]:
    """The GPUs that programs see: those of `nvidia-smi`, limited to CUDA_VISIBLE_DEVICES if it is set."""
    query = ["nvidia-smi", f"--query-gpu={','.join(COLUMNS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    listed = {row[0]: (row[1], GPU(row[2], _bytes(row[3]), _bytes(row[4]), *row[5:])) for row in rows if _is_row(row)}
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return [gpu for _, gpu in listed.values()]
    seen = [name.strip() for name in names.split(",") if name.strip()]
    # A slice of one of them (MIG), which has a part of its memory.
    slices = [
        replace(gpu, memory=0, free=0) for name in seen for _, gpu in [*listed.values()][:1] if name[:4] == "MIG-"
    ]
    whole = [gpu for name in seen for number, (uuid, gpu) in listed.items() if name == number or uuid.startswith(name)]
    return slices + whole


def _is_row(row: list[str]) -> bool:
    return len(row) == len(COLUMNS) and row[0].isdecimal()


def _bytes(mebibytes: str) -> int:
    return int(mebibytes) << 20 if mebibytes.isdecimal() else 0
