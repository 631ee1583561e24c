"""The number format in which this machine's CPU runs models: bfloat16 if it has instructions for it.

A CPU without them emulates bfloat16 and serves a model ten times slower than in float32.
"""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

# Their names in Linux's /proc/cpuinfo, on x86 and on Arm.
BFLOAT16_UNITS = {"avx512_bf16", "amx_bf16", "bf16"}

# oneDNN, which multiplies matrices for PyTorch and vLLM, uses only the instructions that ONEDNN_MAX_CPU_ISA allows.
# These are the levels without bfloat16 (oneDNN, "CPU dispatcher control").
LEVELS_WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}


def number_format(features: Collection[str] | None = None) -> str:
    """The faster of `bfloat16` and `float32` (PyTorch's and vLLM's names) on a CPU with these features.

    `features` defaults to `processor_features()`.
    """
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in LEVELS_WITHOUT_BFLOAT16:
        return "float32"
    features = processor_features() if features is None else features
    return "float32" if BFLOAT16_UNITS.isdisjoint(features) else "bfloat16"


def processor_features() -> frozenset[str]:
    """The features of this machine's CPU under their Linux names; empty if unknown."""
    if sys.platform == "darwin":
        # Exits with an error on CPUs too old to have this name.
        sysctl = ["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]
        value = subprocess.run(sysctl, capture_output=True, text=True, check=False).stdout.strip()
        return frozenset({"bf16"} if value == "1" else ())
    cpuinfo = Path("/proc/cpuinfo")
    return features_in(cpuinfo.read_text(encoding="utf-8", errors="replace")) if cpuinfo.exists() else frozenset()


def features_in(cpuinfo: str) -> frozenset[str]:
    """The features common to all cores in the text of /proc/cpuinfo: `flags` on x86, `Features` on Arm."""
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    cores = [frozenset(value.split()) for name, _, value in lines if name.strip() in {"flags", "Features"}]
    return frozenset.intersection(*cores) if cores else frozenset()
