#!/usr/bin/env bash
# PEFT's add_weighted_adapter() of one LoRA adapter with weight 1 should be that adapter. With rsLoRA its change is
# multiplied by the root of the rank (the new adapter has alpha = rank, made for scaling by alpha / rank, and keeps
# use_rslora), for every way of combining that was tried; with DoRA, lora_bias, trainable_token_indices and a
# modules_to_save of one adapter alone, these parts are left out. Nothing is said.
#
# peft 0.21.2, transformers 5.19.0, torch 2.13.0 (CPU). Output seen:
#   rsLoRA of rank 16, the size of its change times: {'cat': 4.0, 'linear': 4.0, 'svd': 4.0, 'ties': 4.0}
#   equal logits: LoRA
#   other logits: rsLoRA, DoRA, lora_bias, trainable_token_indices, modules_to_save
# It bites whoever averages or adds adapters: half of two rsLoRA adapters of rank 16 each, put together by `cat`
# (rank 32), is 5.7 times what it should be. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 peft==0.21.2
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    attention_bias=True,
)
WORDS = torch.arange(12)[None]


def trained(**kind):
    torch.manual_seed(0)
    lora = LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"], **kind)
    model = get_peft_model(LlamaForCausalLM(config).eval(), lora, adapter_name="first")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def change(model, adapter):
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    return layer.get_delta_weight(adapter).norm().item()


factors = {}
for way in ("cat", "linear", "svd", "ties"):
    model = trained(use_rslora=True)
    model.add_weighted_adapter(["first"], [1.0], "again", combination_type=way, density=1.0)
    factors[way] = round(change(model, "again") / change(model, "first"), 3)
print(f"rsLoRA of rank 16, the size of its change times: {factors}")

KINDS = {
    "LoRA": {},
    "rsLoRA": {"use_rslora": True},
    "DoRA": {"use_dora": True},
    "lora_bias": {"lora_bias": True},
    "trainable_token_indices": {"trainable_token_indices": [3, 4]},
    "modules_to_save": {"modules_to_save": ["lm_head"]},
}
same = {}
for name, kind in KINDS.items():
    model = trained(**kind)
    with torch.no_grad():
        before = model(input_ids=WORDS).logits
        model.add_weighted_adapter(["first"], [1.0], "again", combination_type="cat")
        model.set_adapter("again")
        same[name] = torch.allclose(before, model(input_ids=WORDS).logits, atol=1e-4)
print("equal logits:", ", ".join(name for name, equal in same.items() if equal))
print("other logits:", ", ".join(name for name, equal in same.items() if not equal))
expected = dict.fromkeys(KINDS, False) | {"LoRA": True}
sys.exit(same != expected or any(abs(factor - 4) > 0.01 for factor in factors.values()))
PYTHON
