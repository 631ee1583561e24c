"""A machine, without importing anything heavy: its processor, memory, GPUs, driver and packages."""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Literal

import psutil
from packaging.requirements import Requirement

import notewriter
from notewriter.ground.errors import CLONE
from notewriter.models.gpus import GPU
from notewriter.models.processor import number_format

GIB = 1 << 30

OLDEST_DRIVERS = {13: 580, 12: 525}
"""The major version of CUDA that a package was built for -> the oldest driver that runs it.

CUDA's release notes, table 3, without forward compatibility.
"""


@dataclass(frozen=True)
class Finding:
    """A finding of a check; `note` is worth knowing, `wrong` stops something that this machine is set up for.

    `remedy` is a command or what to do; empty where nothing is to be done.
    """

    name: str
    state: Literal["ok", "note", "wrong"]
    found: str
    remedy: str = ""


def describe(gpus: Sequence[GPU]) -> list[Finding]:
    """The system, the CPU, the memory, the GPUs and the packages."""
    return [system(), processor(), memory(), *([gpu(each) for each in gpus] or [gpu(None)]), packages()]


def system() -> Finding:
    """The operating system, Python and the C library."""
    library = " ".join(platform.libc_ver())
    names = (platform.system(), platform.machine(), f"Python {platform.python_version()}", library.strip())
    return Finding("system", "ok", ", ".join(filter(None, names)))


def processor() -> Finding:
    """The CPU, and the number format in which it runs models."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    name = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    kind = name[1] if name else platform.processor() or platform.machine()
    # A container or a scheduler may leave a process fewer.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count()
    return Finding("CPU", "ok", f"{kind}, {usable} threads to use; models in {number_format()}")


def memory() -> Finding:
    """The machine's memory."""
    now = psutil.virtual_memory()
    found = f"{now.total / GIB:.0f} GiB, {now.available / GIB:.0f} free"
    if now.available < 4 * GIB:
        return Finding("memory", "note", f"{found}; training and serving the smallest model take 4 GiB", "end others")
    return Finding("memory", "ok", found)


def gpu(found: GPU | None) -> Finding:
    """The finding on a GPU, or on the lack of one."""
    if found is None:
        listed = "nvidia-smi lists none, or CUDA_VISIBLE_DEVICES hides it; everything runs on the CPU"
        return Finding("GPU", "note", listed)
    size = f"{found.memory / GIB:.0f} GiB, {found.free / GIB:.0f} free" if found.memory else "memory unknown"
    text = f"{found.name}, {size}, driver {found.driver}, compute capability {found.capability}"
    if found.memory and found.free < 0.9 * found.memory:
        # vLLM asks for 0.92 of it.
        remedy = "nvidia-smi, or --serve_options '{\"gpu_memory_utilization\": 0.5}'"
        return Finding("GPU", "note", f"{text}; others use it", remedy)
    return Finding("GPU", "ok", text)


def driver(gpus: Sequence[GPU], cuda: str) -> Finding:
    """Whether the driver runs packages that were built for a version of CUDA, such as 13.0."""
    version = gpus[0].driver
    oldest = OLDEST_DRIVERS.get(int(cuda.split(".")[0]), 0)
    if version.split(".")[0].isdecimal() and int(version.split(".")[0]) < oldest:
        needs = f"{version}; torch is built for CUDA {cuda}, which needs {oldest} or newer"
        return Finding("driver", "wrong", needs, "update the driver, or install cuda-compat (docs/install.md)")
    return Finding("driver", "ok", f"{version} runs CUDA {cuda}")


def packages() -> Finding:
    """Whether the project's requirements are installed; of its extras, in the versions that it takes."""
    problems = []
    known = metadata("notewriter")
    extras = known.get_all("Provides-Extra") or []
    for needed in map(Requirement, known.get_all("Requires-Dist") or []):
        core = needed.marker is None or needed.marker.evaluate({"extra": ""})
        extra = any(needed.marker and needed.marker.evaluate({"extra": each}) for each in extras)
        try:
            installed = version(needed.name)
        except PackageNotFoundError:
            # A command that needs an extra says so.
            problems += [f"{needed.name} is missing"] if core else []
            continue
        if (core or extra) and not needed.specifier.contains(installed, prereleases=True):
            problems.append(f"{needed.name} {installed} is not {needed.specifier}")
    if not problems:
        return Finding("packages", "ok", f"notewriter {notewriter.__version__}, its requirements are met")
    clone = (CLONE / "pyproject.toml").is_file()
    again = "make clean, then make setup; or pip install -e ." if clone else "install its wheel again"
    return Finding("packages", "wrong", "; ".join(problems), again)
