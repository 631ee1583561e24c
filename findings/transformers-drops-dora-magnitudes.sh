#!/usr/bin/env bash
# A DoRA adapter that PEFT saved is loaded by transformers' own loaders (from_pretrained() of the adapter's folder, or
# load_adapter()) without its trained magnitudes: PEFT 0.21 saves `lora_magnitude_vector`, transformers looks for
# `lora_magnitude_vector.weight` and keeps the norms of the base. PeftModel.from_pretrained() reads the same folder
# rightly, and so it does what transformers itself trained with add_adapter(), saved and cannot read.
#
# transformers 5.19.0, peft 0.21.2, torch 2.13.0 (CPU). Output seen:
#   LoRA saved by peft, equal logits from: PeftModel.from_pretrained, AutoModelForCausalLM.from_pretrained, load_adapter
#   LoRA saved by transformers, equal logits from: PeftModel.from_pretrained, AutoModelForCausalLM.from_pretrained, load_adapter
#   DoRA saved by peft, equal logits from: PeftModel.from_pretrained
#   DoRA saved by transformers, equal logits from: PeftModel.from_pretrained
# The only sign is a report of unexpected and missing keys, which says that they "can be ignored when loading from
# different task/architecture". It bites whoever evaluates a DoRA adapter by its folder's name, as many programs do.
# Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 peft==0.21.2
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
LlamaForCausalLM(
    LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
).save_pretrained("base")
WORDS = torch.arange(12)[None]


def base():
    return AutoModelForCausalLM.from_pretrained("base", dtype=torch.float32)


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=WORDS).logits


def by_load_adapter(folder):
    model = base()
    model.load_adapter(folder)
    return model


def trained(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn_like(parameter)
    return model


LOADERS = {
    "PeftModel.from_pretrained": lambda folder: PeftModel.from_pretrained(base(), folder),
    "AutoModelForCausalLM.from_pretrained": AutoModelForCausalLM.from_pretrained,
    "load_adapter": by_load_adapter,
}
seen = {}
for kind in (False, True):
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", use_dora=kind)
    for way in ("peft", "transformers"):
        if way == "peft":
            model = trained(get_peft_model(base(), lora))
        else:
            model = base()
            model.add_adapter(lora)
            trained(model)
        folder = f"{way}-{kind}"
        model.save_pretrained(folder)
        wanted = logits(model)
        equal = [torch.allclose(wanted, logits(load(folder)), atol=1e-5) for load in LOADERS.values()]
        seen[folder] = equal
        right = ", ".join(name for name, each in zip(LOADERS, equal) if each)
        print(f"{'DoRA' if kind else 'LoRA'} saved by {way}, equal logits from: {right}")
one, all_three = [True, False, False], [True] * 3
sys.exit(
    seen != {"peft-False": all_three, "transformers-False": all_three, "peft-True": one, "transformers-True": one}
)
PYTHON
