"""What the tests of trained and of merged models share."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Glm4MoeConfig, Glm4MoeForCausalLM

BIASES = [13.01, 13.02, 13.03, 13.04]
"""Of a router; some are one number in bfloat16."""


@pytest.fixture
def routed(tiny_model: Path, tmp_path: Path) -> Path:
    """A small GLM-4.5 in bfloat16, whose router's biases are stored in float32."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1}
    config = Glm4MoeConfig(
        **sizes, **experts, num_key_value_heads=2, head_dim=16, vocab_size=64, n_group=1, topk_group=1
    )
    model = Glm4MoeForCausalLM(config).to(torch.bfloat16)
    model.model.layers[1].mlp.gate.e_score_correction_bias = torch.tensor(BIASES)
    folder = tmp_path / "routed"
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder
