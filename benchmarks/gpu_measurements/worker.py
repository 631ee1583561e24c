"""The process that takes the measurements of benchmarks/gpu.py, which starts it; not a command to type.

Reads one JSON object from standard input (the options and the names of the measurements to take, in order) and writes
JSON lines to standard output: `{"begins": name}` before each measurement and its record after it. The libraries' own
output goes to standard error. A CUDA error other than running out of memory leaves the process useless, so it ends
with status 3 and is started again.
"""

import contextlib
import ctypes
import gc
import json
import signal
import sys
import time
from collections.abc import Callable

import torch

from .ceilings import bandwidth, ceiling
from .channel import own_channel
from .exactness import dependence, exactness
from .kernel import kernel
from .machine import Machine, header
from .profile import profile
from .real_run import real_run
from .reference import KEPT
from .results import Record
from .training_steps import fast

PR_SET_PDEATHSIG = 1
"""Linux's option by which a process asks for a signal at the end of its parent."""

CUDA_ERROR = 3
"""The exit status after an error that the process cannot recover from."""

MEASUREMENTS: dict[str, Callable[..., Record]] = {
    "ceiling": ceiling,
    "bandwidth": bandwidth,
    "kernel": kernel,
    "exactness": exactness,
    "dependence": dependence,
    "fast": fast,
    "profile": profile,
    "real_run": real_run,
}


def measure(machine: Machine, function: str, options: Record) -> tuple[Record, bool]:
    """A measurement's record, and whether the process is of use after it; being out of memory is a result."""
    start = time.perf_counter()
    usable = True
    try:
        record = {"outcome": "measured"} | MEASUREMENTS[function](machine, **options)
    except torch.OutOfMemoryError as error:
        record = {"outcome": "out of memory", "reason": str(error).splitlines()[0]}
        KEPT.clear()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        record = {"outcome": "failed", "reason": reason[:2000]}
        usable = "CUDA error" not in reason
        KEPT.clear()
    # Outside of the except clauses, whose error holds the frames and with them the tensors.
    gc.collect()
    if machine.device.type == "cuda" and usable:
        torch.cuda.empty_cache()
    return record | {"took": round(time.perf_counter() - start, 2)}, usable


def main() -> None:
    """Take the measurements that standard input names."""
    # It ends with the process that started it, whatever ended that one: the next run needs the GPU.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = own_channel()

    def say(record: Record) -> None:
        channel.write(json.dumps(record) + "\n")
        channel.flush()

    request = json.loads(sys.stdin.readline())
    machine = Machine(torch.device(request["device"]), **request["machine"])
    if machine.device.type == "cuda":
        # Not in TF32.
        torch.set_float32_matmul_precision("highest")
    say({"header": header(machine, request["command"])})
    for name, function, options in request["measurements"]:
        say({"begins": name})
        record, usable = measure(machine, function, options)
        say({"name": name, "options": options} | record)
        if not usable:
            sys.exit(CUDA_ERROR)


if __name__ == "__main__":
    main()
