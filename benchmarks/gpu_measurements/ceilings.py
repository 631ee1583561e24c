"""The machine's own limits, beside which the other measurements are read: matrix products and copies."""

import statistics
import time
from collections.abc import Callable

import torch

from .machine import Machine
from .results import Record


def ceiling(machine: Machine, dtype: str) -> Record:
    """The rate of a large matrix product of random numbers, in TFLOP/s: the median of ten."""
    size = 128 if machine.toy else 8192
    left, right = (torch.randn(size, size, device=machine.device, dtype=getattr(torch, dtype)) for _ in range(2))
    seconds = [timed(machine, lambda: left @ right) for _ in range(13)][3:]
    return {"tflops": 2 * size**3 / statistics.median(seconds) / 1e12, "size": size}


def bandwidth(machine: Machine) -> Record:
    """The rate of a copy within the device's memory, in GB/s of bytes read and written: the median of ten."""
    source = torch.randn(2**18 if machine.toy else 2**30, device=machine.device)
    target = torch.empty_like(source)
    seconds = [timed(machine, lambda: target.copy_(source)) for _ in range(13)][3:]
    return {"gb_per_second": 2 * source.numel() * source.element_size() / statistics.median(seconds) / 1e9}


def timed(machine: Machine, work: Callable[[], object]) -> float:
    """Seconds that some work takes on the device."""
    machine.synchronize()
    start = time.perf_counter()
    work()
    machine.synchronize()
    return time.perf_counter() - start
