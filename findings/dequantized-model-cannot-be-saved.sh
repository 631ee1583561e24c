#!/usr/bin/env bash
# A model that was loaded from 4-bit weights (bitsandbytes) and then expanded with dequantize() computes as before, but
# save_pretrained() raises: saving undoes the conversions that loading did, and that of bitsandbytes has no way back.
#
# transformers 5.19.0, bitsandbytes 0.50.2, torch 2.13.0 (CPU), accelerate 1.15.0. Output seen:
#   expanded: torch.float32, is_quantized False; save_pretrained: NotImplementedError
#   without the record of how it was loaded: saved, and read again with equal logits: True
#
# It bites whoever merges a LoRA adapter into a base that is stored in 4 bits, or converts such a base. Setting
# `_weight_conversions` to None, a private attribute, lets it be saved. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 bitsandbytes==0.50.2 accelerate==1.15.0
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=1, dtype="float32"
)
LlamaForCausalLM(config).save_pretrained("plain")
four_bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32)
AutoModelForCausalLM.from_pretrained("plain", quantization_config=four_bits).save_pretrained("stored")

model = AutoModelForCausalLM.from_pretrained("stored").dequantize().float()
try:
    model.save_pretrained("expanded")
    raised = "nothing"
except Exception as error:
    raised = type(error).__name__
print(f"expanded: {model.dtype}, is_quantized {getattr(model, 'is_quantized', False)}; save_pretrained: {raised}")

model._weight_conversions = None
model.save_pretrained("expanded")
again = AutoModelForCausalLM.from_pretrained("expanded", dtype=torch.float32)
words = torch.arange(8)[None]
equal = torch.allclose(model(words).logits, again(words).logits, atol=1e-5)
print(f"without the record of how it was loaded: saved, and read again with equal logits: {equal}")
sys.exit(raised != "NotImplementedError" or not equal)
PYTHON
