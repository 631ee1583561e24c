"""The number format in which this machine's CPU runs models: bfloat16 if it has matrix units for it.

A CPU without instructions for bfloat16 emulates it and serves a model ten times slower than in float32. With
`avx512_bf16` alone it is slower too: on two such cores vLLM wrote 44 tokens a second in bfloat16 and 57 in float32
(SmolLM2-135M, 16 requests at once), and a matrix product took twice as long.
"""

import subprocess
import sys
from pathlib import Path

# Their names in Linux's /proc/cpuinfo, on x86 and on Arm.
BFLOAT16_UNITS = {"amx_bf16", "bf16"}


def number_format() -> str:
    """The faster of `bfloat16` and `float32` (PyTorch's and vLLM's names) on this machine's CPU."""
    if sys.platform == "darwin":
        # Exits with an error on CPUs too old to have this name.
        sysctl = ["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]
        fast = subprocess.run(sysctl, capture_output=True, text=True, check=False).stdout.strip() == "1"
    else:
        cpuinfo = Path("/proc/cpuinfo")
        fast = cpuinfo.exists() and has_bfloat16(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    return "bfloat16" if fast else "float32"


def has_bfloat16(cpuinfo: str) -> bool:
    """Whether the text of /proc/cpuinfo lists bfloat16 units: among `flags` on x86, `Features` on Arm."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return any(name.strip() in {"flags", "Features"} and BFLOAT16_UNITS & {*value.split()} for name, _, value in lines)
