#!/usr/bin/env bash
# PEFT's `ensure_weight_tying` for models whose head is their embedding. Without it, PEFT warns that a tied layer in the
# adapter "can lead to complications, for example when merging"; with it, head and embedding share one adapter. Taken
# for granted, and written down only after the run: with it, the merged model is the trained one, and an adapter loaded
# under a second name is the first.
#
# peft 0.21.2, transformers 5.19.0, torch 2.13.0 (CPU). Output seen:
#   LoRA of embed_tokens, tied: same logits when loaded True, loaded as a second adapter False, merged False
#   embed_tokens in modules_to_save, tied: same logits when loaded True, loaded as a second adapter False, merged True
#   LoRA of q_proj: same logits when loaded True, loaded as a second adapter True, merged True
#   LoRA of embed_tokens, its change in the merged embedding, times: 2.000
#
# A second adapter, loaded or added by add_adapter(), gets the embedding's part and not the head's; nothing is said. It
# bites whoever keeps a frozen copy of an adapter beside the trained one, as a reference, or switches between two. In
# merging, both layers add the shared change to the weight that they share; merge_and_unload() warns, as without the
# option, that this "can lead to complications", and its advice, to clone the weights first, is the remedy. The option
# covers LoRA since pull request 2879 of huggingface/peft. Exits non-zero if the behaviour changes.
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
from transformers import LlamaConfig, LlamaForCausalLM

CASES = {
    "LoRA of embed_tokens, tied": {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
    "embed_tokens in modules_to_save, tied": {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "LoRA of q_proj": {},
}


def base():
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.3}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=True))


def trained(options):
    model = get_peft_model(base(), LoraConfig(r=4, lora_alpha=8, **{"target_modules": ["q_proj"]} | options))
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data += 0.1 * torch.randn(weight.shape)
    return model


def second(folder):
    model = PeftModel.from_pretrained(base(), folder)
    model.load_adapter(folder, "second")
    model.set_adapter("second")
    return model


def same(one, other):
    logits = [model.eval()(torch.arange(2, 20)[None]).logits for model in (one, other)]
    return torch.allclose(*logits, atol=1e-4)


seen = []
for number, (name, options) in enumerate(CASES.items()):
    folder = f"adapter{number}"
    model = trained(options)
    model.save_pretrained(folder)
    loaded = PeftModel.from_pretrained(base(), folder)
    merged = PeftModel.from_pretrained(base(), folder).merge_and_unload()
    equal = [same(each, model) for each in (loaded, second(folder), merged)]
    print(f"{name}: same logits when loaded {equal[0]}, loaded as a second adapter {equal[1]}, merged {equal[2]}")
    seen.append(equal)
adapted = PeftModel.from_pretrained(base(), "adapter0")
change = adapted.get_input_embeddings().get_delta_weight("default").detach()
moved = adapted.merge_and_unload().get_input_embeddings().weight - base().get_input_embeddings().weight
times = ((moved * change).sum() / change.square().sum()).item()
print(f"LoRA of embed_tokens, its change in the merged embedding, times: {times:.3f}")
sys.exit(seen != [[True, False, False], [True, False, True], [True, True, True]] or abs(times - 2) > 1e-4)
PYTHON
