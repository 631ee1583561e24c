"""What a run on the CPU frees stays with its process for a while."""

import subprocess
import sys

import pytest

HALF_A_GIGABYTE = 1 << 29

PROGRAM = f"""
import resource
from pathlib import Path
from transformers import TrainerState
from notewriter.training.run.memory import STEPS, KeepFreedMemory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

def of_a_freed_block():
    before = resident()
    held = b"x" * {HALF_A_GIGABYTE}
    del held
    return resident() - before

keep = KeepFreedMemory()
print(of_a_freed_block())
keep.on_train_begin(None, TrainerState(), None)
print(of_a_freed_block())
before = resident()
keep.on_step_end(None, TrainerState(global_step=STEPS + 1), None)
print(before - resident())
keep.on_step_end(None, TrainerState(global_step=STEPS), None)
print(before - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_freed_memory_is_kept_and_goes_back_now_and_then() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    unkept, kept, between, returned = (int(line) > HALF_A_GIGABYTE // 2 for line in done.stdout.split())
    assert (unkept, kept, between, returned) == (False, True, False, True)
