#!/usr/bin/env bash
# PEFT's unload(), documented as "Return the base model by removing all the PEFT modules", for an adapter with
# modules_to_save. PEFT keeps the original beside the trained copy of such a module, so that an adapter can be disabled
# or unloaded (its maintainer, in issue 551). Taken for granted, and written down for these modules only
# after the run: unload() returns the base model.
#
# peft 0.21.2, transformers 5.19.0, torch 2.13.0 (CPU). Output seen:
#   LoRA alone: the base when disabled True, unloaded True, deleted and unloaded True, warnings 0
#   trainable_token_indices: the base when disabled True, unloaded True, deleted and unloaded True, warnings 0
#   modules_to_save: the base when disabled True, unloaded False, deleted and unloaded True, warnings 0
#   differ after unload(): lm_head.weight
#
# The model is the base with the trained head, which is neither the base nor the trained model. It bites whoever takes
# it for the reference, for a comparison before and after, or for the next adapter: trained heads and embeddings of one
# adapter go on into the next. delete_adapter() first is a remedy, as is disable_adapter(). Exits non-zero if the
# behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 peft==0.21.2
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
import warnings

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

CASES = {
    "LoRA alone": {},
    "trainable_token_indices": {"trainable_token_indices": [3, 4]},
    "modules_to_save": {"modules_to_save": ["lm_head"]},
}


def base():
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.3}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads))


def trained(options):
    model = get_peft_model(base(), LoraConfig(r=4, target_modules=["q_proj"], **options))
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data += 0.1 * torch.randn(weight.shape)
    return model


def is_base(model):
    logits = [each.eval()(torch.arange(2, 20)[None]).logits for each in (model, base())]
    return torch.allclose(*logits, atol=1e-4)


seen = []
for name, options in CASES.items():
    model = trained(options)
    with model.disable_adapter():
        disabled = is_base(model)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        unloaded = trained(options).unload()
    deleted = trained(options)
    deleted.delete_adapter("default")
    states = [disabled, is_base(unloaded), is_base(deleted.unload())]
    shown = f"disabled {states[0]}, unloaded {states[1]}, deleted and unloaded {states[2]}"
    print(f"{name}: the base when {shown}, warnings {len(warned)}")
    seen.append(states)
original = base().state_dict()
others = [name for name, weight in unloaded.state_dict().items() if not torch.equal(weight, original[name])]
print(f"differ after unload(): {', '.join(others)}")
sys.exit(seen != [[True, True, True], [True, True, True], [True, False, True]] or others != ["lm_head.weight"])
PYTHON
