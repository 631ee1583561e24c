"""Floating-point operations of training, and a GPU's peak: for the estimate before a run and for MFU during it.

Kaplan et al. 2020 (arXiv 2001.08361, section 2.1) count 2 operations per parameter and token in a forward pass and 4
in a backward pass. Attention adds, per token, its context's length x layers x hidden for each 2 of these: half of what
a whole square of scores would be, since attention is causal.
"""

import re

FORWARD = 2
BACKWARD = 4
FROZEN_BACKWARD = 2
"""With LoRA the base model needs no gradients of its weights, only those of its activations."""


def passes(lora: bool, *, recomputed: bool = False, reference: bool = False) -> int:
    """Operations per parameter and token of an optimizer step.

    `recomputed`: gradient checkpointing runs the forward pass again. `reference`: DPO scores with a second model.
    """
    return FORWARD + (FROZEN_BACKWARD if lora else BACKWARD) + FORWARD * recomputed + FORWARD * reference


def per_token(passes: int, parameters: int, layers: int, hidden: int) -> tuple[int, int]:
    """Operations per token, and per token for each token of its sequence.

    `parameters` exclude an input embedding that is only looked up.
    """
    return passes * parameters, passes * layers * hidden


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


UTILIZATION = 0.35
"""The fraction of a GPU's peak that training reaches, counting all that it computes: recomputation and reference too.

PaLM's appendix B (Chowdhery et al. 2022, arXiv 2204.02311) calls this the utilization of the hardware; the model's
(MFU), which a run logs, leaves both out. On an H200 0.33 to 0.39 was measured with enough tokens a step
(docs/results/gpu.md).
"""


def peak_tflops(name: str) -> float | None:
    """The peak of a GPU in bfloat16 TFLOPS by the name that its driver reports; None for an unknown GPU."""
    words = name.replace("-", " ")
    # Whole words: an RTX A4000 is no A40.
    return next((peak for part, peak in PEAK_TFLOPS.items() if re.search(rf"\b{part}\b", words, re.IGNORECASE)), None)
