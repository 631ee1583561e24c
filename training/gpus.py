"""The peak throughput of common GPUs."""

PEAK_TFLOPS = {
    "B200": 2250,
    "H200": 989,
    "H100": 989,
    "A100": 312,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "A40": 150,
    "A10": 125,
    "RTX 6000 Ada": 364,
    "RTX A6000": 155,
    "RTX 5090": 210,
    "RTX 4090": 165,
    "RTX 3090": 71,
}
"""Dense bfloat16 TFLOPS with float32 accumulation, from the makers' data sheets, by a part of a GPU's name."""


def peak_tflops(name: str) -> float | None:
    """The peak of a GPU in bfloat16 TFLOPS by the name that its driver reports; None for an unknown GPU."""
    return next((peak for part, peak in PEAK_TFLOPS.items() if part.lower() in name.lower().replace("-", " ")), None)
