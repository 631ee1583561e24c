#!/usr/bin/env bash
# Packing of TRL's SFTTrainer ("bfd", its default strategy) keeps the rows of a batch apart through position ids and
# sequence lengths. Layers that do not read them mix the rows: linear attention and short convolutions where their
# optional kernels are not installed (transformers then says that its own code "is correct but much slower"), and all
# of gpt-oss, which does not hand position ids to its mask, with eager attention. TRL says nothing; a run goes well.
#
# trl 1.16.0, transformers 5.19.0, torch 2.13.0 (CPU, without flash-linear-attention and causal-conv1d), datasets
# 5.2.0. Loss and gradient norm of the same six rows in one batch, and packed into one. Output seen:
#   Llama: loss 4.305 and packed 4.305, gradient 2.29 and 2.29
#   Qwen3.5: loss 4.244 and packed 4.235, gradient 6.21 and 10.32
#   LFM2: loss 4.459 and packed 4.468, gradient 2.81 and 2.85
#   gpt-oss: loss 4.438 and packed 4.406, gradient 3.04 and 2.75
#   rows kept apart: Llama
# It bites whoever trains Qwen3.5, Qwen3-Next, LFM2 or gpt-oss with packing: each row reads the one before it. Exits
# non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 trl==1.16.0 datasets==5.2.0 accelerate==1.15.0
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
import transformers
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import SFTConfig, SFTTrainer

words = {"<end>": 0} | {f"w{index}": index for index in range(1, 64)}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<end>")), eos_token="<end>", pad_token="<end>"
)
generator = torch.Generator().manual_seed(1)
ROWS = [{"input_ids": torch.randint(1, 64, (length,), generator=generator).tolist()} for length in (9, 12, 7, 14, 11, 10)]
LINEAR = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
KINDS = {
    "Llama": ("LlamaConfig", {}),
    "Qwen3.5": ("Qwen3_5TextConfig", LINEAR),
    "LFM2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}),
    "gpt-oss": ("GptOssConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
}


def train(kind, options, packing):
    torch.manual_seed(0)
    config = getattr(transformers, kind)(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, pad_token_id=0, eos_token_id=0, bos_token_id=0, **options,
    )
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= 6
    arguments = SFTConfig(
        "out", report_to=[], use_cpu=True, bf16=False, packing=packing, max_length=64, max_steps=1, logging_steps=1,
        per_device_train_batch_size=1 if packing else 6, save_strategy="no", gradient_checkpointing=False,
        disable_tqdm=True,
    )
    trainer = SFTTrainer(model, arguments, train_dataset=Dataset.from_list(ROWS), processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer.state.log_history[0]["loss"], trainer.state.log_history[0]["grad_norm"]


apart = []
for name, (kind, options) in KINDS.items():
    plain, packed = (train(kind, options, packing) for packing in (False, True))
    print(f"{name}: loss {plain[0]:.3f} and packed {packed[0]:.3f}, gradient {plain[1]:.2f} and {packed[1]:.2f}")
    if abs(plain[1] - packed[1]) < 0.001 * plain[1]:
        apart.append(name)
print("rows kept apart:", ", ".join(apart))
sys.exit(apart != ["Llama"])
PYTHON
