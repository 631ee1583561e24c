"""The peak throughput of common GPUs."""

import re

PEAK_TFLOPS = {
    "GB200": 2500,
    "B200": 2250,
    "GH200": 989,
    "H200 NVL": 835,
    "H200": 989,
    "H100 PCIe": 756,
    "H100 NVL": 835,
    "H100": 989,
    "A100": 312,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "A40": 150,
    "A10": 125,
    "A10G": 70,
    "RTX 6000 Ada": 364,
    "RTX A6000": 155,
    "RTX 5090": 210,
    "RTX 4090": 165,
    "RTX 3090": 71,
}
"""Dense bfloat16 TFLOPS with float32 accumulation, from the makers' data sheets, by words in a GPU's name.

The first that fits counts. Where a sheet has only the figure with sparsity, it is half of that.
"""


def peak_tflops(name: str) -> float | None:
    """The peak of a GPU in bfloat16 TFLOPS by the name that its driver reports; None for an unknown GPU."""
    words = name.replace("-", " ")
    # Whole words: an RTX A4000 is no A40.
    return next((peak for part, peak in PEAK_TFLOPS.items() if re.search(rf"\b{part}\b", words, re.IGNORECASE)), None)
