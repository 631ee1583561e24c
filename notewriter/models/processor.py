"""The number format in which this machine's processor computes models: bfloat16 where it has units for it.

A processor without such units emulates bfloat16 and serves a model ten times slower than in float32.
"""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

# How Linux names the units in /proc/cpuinfo: on x86, on Arm.
BFLOAT16_UNITS = {"avx512_bf16", "amx_bf16", "bf16"}

# oneDNN, which multiplies the matrices of PyTorch and vLLM, uses no more of a processor than ONEDNN_MAX_CPU_ISA
# allows. These are the levels without bfloat16 (oneDNN, "CPU dispatcher control").
LEVELS_WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}


def number_format(features: Collection[str] | None = None) -> str:
    """`bfloat16` or `float32`, as PyTorch and vLLM name them: which of the two a processor is fast in.

    `features` are those of `processor_features` where they are not given.
    """
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in LEVELS_WITHOUT_BFLOAT16:
        return "float32"
    features = processor_features() if features is None else features
    return "float32" if BFLOAT16_UNITS.isdisjoint(features) else "bfloat16"


def processor_features() -> frozenset[str]:
    """What this machine's processor says that it can do, in Linux' names; empty where it is not known."""
    if sys.platform == "darwin":
        # Exits with an error where the processor is too old to know the name.
        sysctl = ["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]
        told = subprocess.run(sysctl, capture_output=True, text=True, check=False).stdout.strip()
        return frozenset({"bf16"} if told == "1" else ())
    cpuinfo = Path("/proc/cpuinfo")
    return features_in(cpuinfo.read_text(encoding="utf-8", errors="replace")) if cpuinfo.exists() else frozenset()


def features_in(cpuinfo: str) -> frozenset[str]:
    """The features that every core has in the text of /proc/cpuinfo: `flags` on x86, `Features` on Arm."""
    named = [line.partition(":") for line in cpuinfo.splitlines()]
    cores = [frozenset(value.split()) for name, _, value in named if name.strip() in {"flags", "Features"}]
    return frozenset.intersection(*cores) if cores else frozenset()
