"""What the process that measures makes of errors."""

from typing import Any

import torch

from benchmarks.gpu_measurements import worker


def test_out_of_memory_is_a_result_and_other_cuda_errors_end_the_process(machine, monkeypatch):
    def fail(machine: Any, error: Exception) -> Any:
        raise error

    monkeypatch.setitem(worker.MEASUREMENTS, "fail", fail)
    memory = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    record, usable = worker.measure(machine, "fail", {"error": memory})
    assert (record["outcome"], usable) == ("out of memory", True)
    record, usable = worker.measure(machine, "fail", {"error": RuntimeError("CUDA error: illegal access")})
    assert (record["outcome"], usable) == ("failed", False)
    record, usable = worker.measure(machine, "fail", {"error": ValueError("no such thing")})
    assert (record["outcome"], record["reason"], usable) == ("failed", "ValueError: no such thing", True)
