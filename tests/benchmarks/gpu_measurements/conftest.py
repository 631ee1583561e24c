import pytest
import torch

from benchmarks.gpu_measurements.machine import Machine


@pytest.fixture
def machine() -> Machine:
    """The CPU, at toy sizes."""
    return Machine(torch.device("cpu"), True, None, None, 1)
