"""What a run frees stays with its process."""

import subprocess
import sys

import pytest

HALF_A_GIGABYTE = 1 << 29

PROGRAM = f"""
import resource
from pathlib import Path
from notewriter.training.run.memory import keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

{{prepare}}
held = b"x" * {HALF_A_GIGABYTE}
del held
print(resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("prepare", "kept"), [("keep_freed_memory()", True), ("", False)])
def test_freed_memory_stays_with_the_process(prepare: str, kept: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(prepare=prepare)], capture_output=True, text=True, check=True
    )
    assert (int(done.stdout) > HALF_A_GIGABYTE) is kept
