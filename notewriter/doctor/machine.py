"""What the machine is: its processor, memory, disk, GPUs and their driver, without importing anything heavy."""

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import psutil

from notewriter.doctor.finding import Finding
from notewriter.models.gpus import GPU
from notewriter.models.processor import number_format

GIB = 1 << 30

FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "sve", "i8mm", "bf16")
"""Instructions that decide how fast a CPU runs models, by their names in /proc/cpuinfo."""

OLDEST_DRIVERS = {13: 580, 12: 525}
"""The major version of CUDA that a package was built for -> the oldest driver that runs it.

CUDA's release notes, table 3, without forward compatibility.
"""

OLDEST_GLIBC = {"x86_64": (2, 31), "aarch64": (2, 34)}
"""The glibc that the wheels of constraints-gpu.txt need."""


def describe(gpus: Sequence[GPU]) -> list[Finding]:
    """The system, the CPU, the memory and the GPUs."""
    return [system(), processor(), memory(), *([gpu(each) for each in gpus] or [gpu(None)])]


def system() -> Finding:
    """The operating system, Python and the C library."""
    library, version = platform.libc_ver()
    names = [platform.system(), platform.machine(), f"Python {platform.python_version()}"]
    found = ", ".join([*names, *([f"{library} {version}"] if library else [])])
    oldest = OLDEST_GLIBC.get(platform.machine())
    if library == "glibc" and oldest and tuple(map(int, version.split(".")[:2])) < oldest:
        needed = ".".join(map(str, oldest))
        return Finding("system", "note", f"{found}; vLLM's wheels for GPUs need glibc {needed}", "docs/install.md")
    return Finding("system", "ok", found)


def processor() -> Finding:
    """The CPU, what it can use, and the number format in which models run on it."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    name = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.+)$", text, re.MULTILINE)
    has = [each for each in FEATURES if flags and each in flags[1].split()]
    cores = psutil.cpu_count(logical=False) or 1
    # A container or a scheduler may leave a process fewer.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count()
    kind = name[1] if name else platform.processor() or platform.machine()
    return Finding(
        "CPU", "ok", f"{kind}, {cores} cores, {usable} threads to use, {' '.join(has)}; models in {number_format()}"
    )


def memory() -> Finding:
    """The machine's memory."""
    now = psutil.virtual_memory()
    found = f"{now.total / GIB:.0f} GiB, {now.available / GIB:.0f} free"
    if now.available < 4 * GIB:
        return Finding("memory", "note", f"{found}; training and serving the smallest model take 4 GiB", "end others")
    return Finding("memory", "ok", found)


def gpu(found: GPU | None) -> Finding:
    """A GPU, or that there is none."""
    if found is None:
        return Finding(
            "GPU", "note", "nvidia-smi lists none, or CUDA_VISIBLE_DEVICES hides it; everything runs on the CPU"
        )
    size = f"{found.memory / GIB:.0f} GiB, {found.free / GIB:.0f} free" if found.memory else "memory unknown"
    text = f"{found.name}, {size}, driver {found.driver}, compute capability {found.capability}"
    if found.memory and found.free < 0.9 * found.memory:
        # vLLM asks for 0.92 of it.
        return Finding(
            "GPU",
            "note",
            f"{text}; others use it",
            "nvidia-smi, or --serve_options '{\"gpu_memory_utilization\": 0.5}'",
        )
    return Finding("GPU", "ok", text)


def driver(gpus: Sequence[GPU], cuda: str) -> Finding:
    """Whether the driver runs packages that were built for a version of CUDA, such as 13.0."""
    version = gpus[0].driver
    oldest = OLDEST_DRIVERS.get(int(cuda.split(".")[0]), 0)
    if version.split(".")[0].isdecimal() and int(version.split(".")[0]) < oldest:
        return Finding(
            "driver",
            "wrong",
            f"{version}; torch is built for CUDA {cuda}, which needs {oldest} or newer",
            "update the driver, or install cuda-compat (docs/install.md)",
        )
    return Finding("driver", "ok", f"{version} runs CUDA {cuda}")
