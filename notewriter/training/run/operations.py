"""Floating-point operations of training: one formula for the estimate before a run and for MFU during it.

Kaplan et al. 2020 (arXiv 2001.08361, section 2.1) count 2 operations per parameter and token in a forward pass and 4
in a backward pass. Attention adds, per token, its context's length x layers x hidden for each 2 of these: half of what
a whole square of scores would be, since attention is causal.
"""

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
