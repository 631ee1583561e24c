"""The models that are measured: random weights of published shapes.

The numbers are those of each model's published `config.json`. `TOY` replaces the widths with ones that a CPU computes
in milliseconds and keeps what decides which code runs: grouped heads, windows, soft caps, sinks, experts.
"""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, set_seed

from .machine import Machine

SHAPES: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
    },
    "Llama-3.1-8B": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    },
    "Qwen2.5-1.5B": {
        "model_type": "qwen2",
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
    "Qwen2.5-7B": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
    "Qwen3-8B": {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
    # The release with a sliding window; later ones have none.
    "Mistral-7B-v0.1": {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "sliding_window": 4096,
        "rms_norm_eps": 1e-5,
    },
    "Gemma-3-4B": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "query_pre_attn_scalar": 256,
        "sliding_window": 1024,
        "tie_word_embeddings": True,
    },
    "Gemma-2-9B": {
        "model_type": "gemma2",
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "num_hidden_layers": 42,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "vocab_size": 256000,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "tie_word_embeddings": True,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 201088,
        "sliding_window": 128,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.0,
    },
    "Qwen3-30B-A3B": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "router_aux_loss_coef": 0.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
}

ALTERNATING = {"gemma3_text", "gemma2", "gpt_oss"}
"""Model types in which some layers have a window and others see everything; a few layers have to hold both."""

TOY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
}
TOY_WHERE_DECLARED = {
    "sliding_window": 24,
    "query_pre_attn_scalar": 16,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}


def configuration(name: str, *, layers: int | None = None, toy: bool = False) -> PreTrainedConfig:
    """The configuration of a model of `SHAPES`, with its own number of layers or fewer."""
    values = dict(SHAPES[name])
    if toy:
        values |= TOY | {key: value for key, value in TOY_WHERE_DECLARED.items() if key in values}
    if layers is not None:
        values["num_hidden_layers"] = min(layers, values["num_hidden_layers"])
        if values["model_type"] in ALTERNATING:
            kinds = ("sliding_attention", "full_attention")
            values["layer_types"] = [kinds[layer % 2] for layer in range(values["num_hidden_layers"])]
    values |= {"max_position_embeddings": 32768, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return AutoConfig.for_model(values.pop("model_type"), **values)


def random_model(
    machine: Machine, name: str, dtype: torch.dtype, attention: str, layers: int | None = None
) -> PreTrainedModel:
    """A random model of a shape of `SHAPES`, on the device; the same weights every time."""
    values = configuration(name, layers=layers, toy=machine.toy)
    set_seed(0)
    with torch.device(machine.device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            values, dtype=dtype, attn_implementation=attention, trust_remote_code=False
        )
    return model
