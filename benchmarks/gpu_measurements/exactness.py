"""How far stacked and shared scoring are from exact scores, in each way of computing that training offers."""

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from transformers import PreTrainedModel

from .attention import attention_calls, own_attention
from .batches import batch_lengths
from .machine import Machine
from .reference import reference
from .results import Record
from .scoring import Scores, score_alone, score_stack

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class Variant:
    """A way of computing that training offers."""

    dtype: torch.dtype = torch.bfloat16
    autocast: bool = False
    reentrant: bool | None = None
    """Gradient checkpointing, of PyTorch's older or newer kind; None is without."""
    lora: bool = False
    compiled: bool = False


VARIANTS = {
    "bf16": Variant(),
    "fp32": Variant(torch.float32),
    "autocast": Variant(torch.float32, autocast=True),
    "checkpointing": Variant(reentrant=False),
    "reentrant checkpointing": Variant(reentrant=True),
    "LoRA": Variant(lora=True),
    "compile": Variant(compiled=True),
}

FLOORS = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (1e-3, 1e-2)}
"""Errors that are never a fault: of a token's log-prob in nats, and of all gradients, relative."""

MOST = 1.5
"""Shared scoring may be so many times as far from the exact scores as stacked scoring is."""


def exactness(machine: Machine, name: str, batch_name: str, variant_name: str) -> Record:
    """How far stacked and shared scoring are from the exact scores, in one variant."""
    variant = VARIANTS[variant_name]
    exact = reference(machine, name, batch_name, variant.lora)
    sums = [row.sum() for row in exact.scores.log_probs.split((exact.batch["labels"] != -100).sum(1).tolist())]
    record: Record = {"tokens": len(exact.scores.log_probs), "pairs": len(sums) // 2}
    for way in ("stacked", "shared"):
        model = prepared(machine, exact.model, variant, shared=way == "shared")
        autocast = torch.autocast(machine.device.type, dtype=torch.bfloat16, enabled=variant.autocast)
        with autocast, attention_calls() as calls:
            found = score_stack(model, exact.batch, torch.stack(sums))
        if way == "shared":
            record["attention"] = " and ".join(sorted(calls)) or "scaled_dot_product_attention"
        record[way] = errors(found, exact.scores)
    floor = FLOORS[torch.bfloat16 if variant.autocast else variant.dtype]
    # Written so that NaN is a fault.
    record["right"] = all(
        record["shared"][error] <= max(MOST * record["stacked"][error], least)
        for error, least in zip(("log_prob", "gradient"), floor, strict=True)
    )
    return record


def prepared(machine: Machine, model: "PreTrainedModel | PeftModel", variant: Variant, shared: bool) -> torch.nn.Module:
    """A copy of a model that computes as a variant does; buffers (the frequencies of positions) stay in float32."""
    from trl.trainer.utils import add_fused_lm_head

    from training.prefix_sharing import share_prefixes

    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(variant.dtype)
    bare = model if isinstance(model, PreTrainedModel) else cast(PreTrainedModel, model.get_base_model())
    bare.set_attn_implementation(own_attention(bare))
    add_fused_lm_head(bare)
    if shared:
        share_prefixes(bare)
    if variant.reentrant is not None:
        bare.gradient_checkpointing_enable({"use_reentrant": variant.reentrant})
        bare.enable_input_require_grads()
    if variant.compiled:
        return cast(torch.nn.Module, torch.compile(model, backend="aot_eager" if machine.toy else "inductor"))
    return model


def errors(found: Scores, exact: Scores) -> Record:
    """The mean and the largest error of a log-prob, that of the loss, and those of the gradients, relative."""
    apart = (found.log_probs - exact.log_probs).abs()
    squares = {
        key: ((found.gradients[key].float() - gradient.float()).square().sum(), gradient.float().square().sum())
        for key, gradient in exact.gradients.items()
    }
    difference, size = (torch.stack(sums).sum().sqrt().item() for sums in zip(*squares.values(), strict=True))
    # A parameter whose gradient is next to nothing says nothing.
    share = {
        key: (one / other).sqrt().item()
        for key, (one, other) in squares.items()
        if other.sqrt().item() > 1e-3 * size / math.sqrt(len(squares))
    }
    worst = max(share, key=lambda key: share[key])
    return {
        "log_prob": apart.mean().item(),
        "largest_log_prob": apart.max().item(),
        "loss": abs(found.loss - exact.loss),
        "gradient": difference / size,
        "worst_gradient": share[worst],
        "worst_parameter": worst,
    }


def dependence(machine: Machine, name: str) -> Record:
    """How much the scores depend on the far half of the prompt: what a sharing that lost it would get wrong."""
    exact = reference(machine, name, "ragged", False)
    ids = exact.batch["input_ids"].clone()
    far = min(batch_lengths(machine, "ragged").prompts) // 2
    ids[:, :far] = ids[:, :far].flip(1)
    changed = score_alone(exact.model, exact.batch | {"input_ids": ids})
    return {"log_prob": (changed.log_probs - exact.scores.log_probs).abs().mean().item()}
