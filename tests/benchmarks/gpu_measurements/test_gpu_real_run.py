"""A real run, in a process of its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu_measurements.real_run import real_run

ROOT = Path(__file__).parents[3]


@pytest.mark.integration
def test_a_real_run_tells_its_losses(machine, tiny_model, write_pairs, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    machine = replace(machine, model=str(tiny_model), pairs=str(write_pairs()), steps=3)
    losses = real_run(machine, "cpu", "fp32")["losses"]
    assert len(losses) == 3
    assert len(set(losses)) == 3
