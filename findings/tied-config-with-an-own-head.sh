#!/usr/bin/env bash
# A checkpoint whose config.json says tie_word_embeddings: true, and whose file has an lm_head.weight of other values
# (as a merged adapter with a trained head leaves it), is loaded untied: transformers uses the file's head, with a
# warning. The configuration stays at true, in memory and in what is saved, so whoever ties by it has another model.
#
# transformers 5.19.0, torch 2.13.0 (CPU). Output seen:
#   loaded: head of the file True, tied False, config.tie_word_embeddings True
#   saved again: config.json true, lm_head in the file True
#   without lm_head.weight in the file: tied True
#   logits of the two differ by more than 0.01: True
#
# It bites whoever trains or evaluates with transformers and serves with a program that goes by config.json: vLLM 0.32
# ties its head to the embeddings then, by its code (not run here). Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    tie_word_embeddings=True,
)
LlamaForCausalLM(config).save_pretrained("tied")
tensors = load_file("tied/model.safetensors")
head = torch.randn_like(tensors["model.embed_tokens.weight"])
LlamaForCausalLM(config).save_pretrained("own")
save_file(tensors | {"lm_head.weight": head}, "own/model.safetensors", metadata={"format": "pt"})

own, tied = (AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32) for name in ("own", "tied"))


def is_tied(model):
    return torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)


takes_head = torch.equal(own.lm_head.weight, head)
says = own.config.tie_word_embeddings
print(f"loaded: head of the file {takes_head}, tied {is_tied(own)}, config.tie_word_embeddings {says}")
own.save_pretrained("again")
written = json.loads(Path("again/config.json").read_text())["tie_word_embeddings"]
kept = "lm_head.weight" in load_file("again/model.safetensors")
print(f"saved again: config.json {json.dumps(written)}, lm_head in the file {kept}")
print(f"without lm_head.weight in the file: tied {is_tied(tied)}")
words = torch.arange(8)[None]
differ = (own(words).logits - tied(words).logits).abs().max().item() > 0.01
print(f"logits of the two differ by more than 0.01: {differ}")
sys.exit(not (takes_head and not is_tied(own) and says and written and kept and is_tied(tied) and differ))
PYTHON
