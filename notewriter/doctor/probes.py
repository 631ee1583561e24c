"""Probes that import packages which may be broken, or wait for a disk: each in a process of its own.

    python -m notewriter.doctor.probes NAME [ARGUMENT]

prints its result as a JSON object, its last line. `probe` runs it with a time limit.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Result = dict[str, Any]

BLOCK, BLOCKS = 1 << 22, 32
"""Bytes that are written to measure a disk: 32 x 4 MiB."""

PATIENCE_WITH_KILLED = 10.0
"""Seconds to wait for killed processes, which give back their memory first."""


def probe(name: str, patience: float, *arguments: str) -> Result:
    """The result of a probe; if it fails, crashes or hangs, `error` with its last line or its end."""
    command = [sys.executable, "-m", "notewriter.doctor.probes", name, *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                # Until what it started, which has the same pipes, has ended too.
                process.communicate(timeout=PATIENCE_WITH_KILLED)
            return {"error": f"no answer within {patience:.0f} s"}
    if process.returncode < 0:
        return {"error": f"crashed (signal {-process.returncode})"}
    lines = (output if process.returncode == 0 else errors).strip().splitlines()
    if process.returncode:
        return {"error": lines[-1][:300] if lines else f"ended with {process.returncode}"}
    found: Result = json.loads(lines[-1])
    return found


def torch() -> Result:
    """PyTorch: its version, the CUDA that it is built for, the GPUs that it sees, and a forward pass.

    `relative_error` is that of two layers in bfloat16, on the first GPU or else the CPU, against float32 on the CPU.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    states = torch.randn(1, 64, 256)
    with torch.inference_mode():
        exact = model(states)
        where = "cuda" if gpus else "cpu"
        found = model.to(where, torch.bfloat16)(states.to(where, torch.bfloat16)).to("cpu", torch.float32)
    error = ((found - exact).norm() / exact.norm()).item()
    return {"version": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus, "relative_error": error}


def vllm() -> Result:
    """vLLM: its version, and the kind of device that it would serve on."""
    from vllm import __version__
    from vllm.platforms import current_platform

    return {"version": __version__, "device": current_platform.device_type or "none"}


def disk(folder: str) -> Result:
    """A folder's file system: its kind, whether machines share it, its free bytes, and how fast it is written."""
    from notewriter.models.cache import file_system_of, is_shared

    path = next(each for each in [Path(folder).absolute(), *Path(folder).absolute().parents] if each.is_dir())
    block = os.urandom(BLOCK)
    began = time.perf_counter()
    with tempfile.TemporaryFile(dir=path) as file:
        for _ in range(BLOCKS):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    kind = file_system_of(path)
    free = shutil.disk_usage(path).free
    return {"kind": kind, "shared": is_shared(kind), "free": free, "bytes_per_second": BLOCK * BLOCKS / seconds}


PROBES: dict[str, Callable[..., Result]] = {each.__name__: each for each in (torch, vllm, disk)}


def main(argv: list[str]) -> None:
    """Run a probe and print its result."""
    name, *arguments = argv
    found = PROBES[name](*arguments)
    # Libraries may print too.
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
