"""The exact scores that every variant of computing is compared with, and the model that they are of."""

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel, set_seed

from .batches import Batch, batch_lengths, stack
from .machine import Machine
from .scoring import Scores, score_alone
from .shapes import random_model

if TYPE_CHECKING:
    from peft import PeftModel

LAYERS = 2
"""Of the models that exactness is measured on; the widths are the real ones."""


@dataclass(frozen=True)
class Reference:
    """A float32 model whose weights bfloat16 represents exactly, a batch, and its exact scores."""

    model: "PreTrainedModel | PeftModel"
    batch: Batch
    scores: Scores


KEPT: dict[tuple[Machine, str, str, bool], Reference] = {}
"""The last reference: the variants of computing are compared with the same one."""


def reference(machine: Machine, name: str, batch_name: str, lora: bool) -> Reference:
    """The reference for a shape and a batch, with an adapter or without."""
    key = (machine, name, batch_name, lora)
    if key not in KEPT:
        # Two of them need not fit.
        KEPT.clear()
        gc.collect()
        bare = random_model(machine, name, torch.bfloat16, "exact", LAYERS).float().train()
        batch = stack(machine, batch_lengths(machine, batch_name), bare.config.vocab_size)
        model = with_adapter(bare) if lora else bare
        scores = score_alone(model, batch)
        model.zero_grad()
        KEPT[key] = Reference(model, batch, scores)
    return KEPT[key]


def with_adapter(model: PreTrainedModel) -> "PeftModel":
    """A model with LoRA on all linear layers, whose output is not zero as it would be at the start."""
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    set_seed(2)
    for key, parameter in adapted.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(parameter, std=0.01)
        if "lora_" in key:
            # Exact in bfloat16, as the other weights are.
            parameter.data = parameter.data.bfloat16().to(parameter.dtype)
    return adapted
