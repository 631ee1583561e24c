#!/usr/bin/env bash
# LoRA on the experts of a mixture, which are parameters and no modules in transformers 5 (`target_parameters`), in some
# layers alone. Guess before running: `layers_to_transform` and `exclude_modules` choose the layers of the experts, as
# they choose those of q_proj.
#
# peft 0.21.2, transformers 5.19.0, torch 2.13.0, a Qwen3-MoE of three layers. Output seen:
#   layers_to_transform=[1]: q_proj in layers [1], experts in layers [0, 1, 2], warnings: 0
#   exclude_modules of layers 0 and 2: q_proj in layers [1], experts in layers [0, 1, 2], warnings: 0
#   layers named in target_parameters: experts in layers [1]
#
# The experts of all layers get an adapter that is trained. Only `target_parameters` itself can name the layers, as in the
# last line ("layers.1.mlp.experts.down_proj"). The help of `layers_to_transform` ties it to `target_modules`, a list,
# which is given here; that of `exclude_modules` names no such limit. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 peft==0.21.2
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import re
import sys
import warnings

from peft import LoraConfig, get_peft_model
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

SIZES = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16, "head_dim": 8},
    **{"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 4},
}
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def adapted(**settings):
    """The layers whose q_proj and whose experts have an adapter, and the number of warnings."""
    settings = {"r": 4, "task_type": "CAUSAL_LM", "target_modules": ["q_proj"], "target_parameters": EXPERTS} | settings
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = get_peft_model(Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES)), LoraConfig(**settings))
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    layers = [
        sorted({int(re.search(r"layers\.(\d+)", name)[1]) for name in names if part in name})
        for part in ("q_proj", "experts")
    ]
    return *layers, len(told)


chosen = adapted(layers_to_transform=[1])
excluded = adapted(exclude_modules=r".*layers\.(0|2)\..*")
named = adapted(target_parameters=[f"layers.1.{name}" for name in EXPERTS])
for title, (attention, experts, told) in (
    ("layers_to_transform=[1]", chosen),
    ("exclude_modules of layers 0 and 2", excluded),
):
    print(f"{title}: q_proj in layers {attention}, experts in layers {experts}, warnings: {told}")
print(f"layers named in target_parameters: experts in layers {named[1]}")
sys.exit([chosen, excluded, named[1]] != [([1], [0, 1, 2], 0), ([1], [0, 1, 2], 0), [1]])
PYTHON
