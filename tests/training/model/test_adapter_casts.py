"""A LoRA adapter in float32 takes its layer's input as it is where autocast makes it half precision anyway."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from notewriter.training.model.adapters import leave_casts_out

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "vocab_size": 19, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class Casts(TorchDispatchMode):
    """Counts casts from one floating type to another."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        into = kwargs.get("dtype")
        if function is torch.ops.aten._to_copy.default and into is not None and into != args[0].dtype:
            self.count += args[0].is_floating_point()
        return function(*args, **kwargs)


def accelerator(precision: str = "bf16", deepspeed: object = None) -> Any:
    return SimpleNamespace(mixed_precision=precision, state=SimpleNamespace(deepspeed_plugin=deepspeed))


def adapted(**options: Any) -> Any:
    """Two layers in bfloat16 with an adapter in float32 on each of 14 linear layers."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **SIZES), dtype=torch.bfloat16)
    settings = {"r": 4, "target_modules": "all-linear", "init_lora_weights": False} | options
    return get_peft_model(base, LoraConfig(**settings)).train()


def step(model: Any) -> tuple[int, torch.Tensor, list[torch.Tensor]]:
    ids = torch.arange(24).view(2, 12) % 19
    with Casts() as casts, torch.autocast("cpu", torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    with casts:
        loss.backward()
    return casts.count, loss.detach(), [each.grad for each in model.parameters() if each.requires_grad]


def test_loss_and_gradients_are_equal_in_every_bit_with_two_casts_fewer_per_layer_forward_and_back() -> None:
    plain = adapted()
    ours = copy.deepcopy(plain)
    leave_casts_out(ours, accelerator())

    (before, loss, gradients), (after, same_loss, same_gradients) = step(plain), step(ours)
    assert torch.equal(loss, same_loss)
    assert all(torch.equal(one, other) for one, other in zip(gradients, same_gradients, strict=True))
    # PEFT's to float32 and autocast's back in 14 layers, and in the backward of all but the first three, whose input is
    # the embeddings.
    assert before - after == 2 * 14 + 2 * 11


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({}, accelerator("no")),
        ({}, accelerator("bf16", deepspeed=object())),
        ({"use_dora": True}, accelerator()),
        ({"lora_dropout": 0.1}, accelerator()),
    ],
    ids=["without autocast", "DeepSpeed, which has its own", "DoRA", "dropout"],
)
def test_elsewhere_peft_casts_as_ever(options: dict[str, Any], where: Any) -> None:
    model = adapted(**options)
    leave_casts_out(model, where)
    assert all(each.cast_input_dtype_enabled for each in model.modules() if hasattr(each, "cast_input_dtype_enabled"))
