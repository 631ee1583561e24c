"""Every kind of LoRA adapter, merged, says what the base says with it, on tied and on untied embeddings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from notewriter.models.checkpoint import Checkpoint
from notewriter.training.model.adapters import merge

ROUTER = "model.layers.1.mlp.gate.e_score_correction_bias"

IDS = torch.arange(34)[None] % 13 + 5


def save(model: PreTrainedModel, folder: Path, tiny_model: Path) -> Path:
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


@pytest.fixture
def base(tiny_model: Path, tmp_path: Path) -> Callable[[bool], Path]:
    def build(tied: bool) -> Path:
        torch.manual_seed(0)
        config = LlamaConfig.from_pretrained(tiny_model, tie_word_embeddings=tied)
        return save(LlamaForCausalLM(config), tmp_path / "base", tiny_model)

    return build


@pytest.fixture
def mixture(tiny_model: Path, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    routed = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "num_key_value_heads": 2}
    config = Qwen3MoeConfig(**sizes, **routed, head_dim=16, vocab_size=64, tie_word_embeddings=True)
    return save(Qwen3MoeForCausalLM(config), tmp_path / "base", tiny_model)


def trained(base: Path, folder: Path, **options: Any) -> Path:
    """An adapter whose every trained tensor has moved."""
    torch.manual_seed(1)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **options)
    )
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return folder


def scores(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits.log_softmax(-1)


def check(base: Path, adapter: Path, merged: Path) -> PreTrainedModel:
    """Compare an adapter with what it was merged into, as that is loaded again."""
    merge(adapter, merged)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = scores(plain)
    together = scores(PeftModel.from_pretrained(plain, adapter))
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(merged)
    torch.testing.assert_close(scores(model), together, rtol=1e-4, atol=1e-4)
    assert (together - before).abs().max() > 0.01
    return model


KINDS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "v_proj"]},
    "all-linear": {"target_modules": "all-linear"},
    "lm_head": {"target_modules": ["q_proj", "lm_head"]},
    "embed_tokens": {"target_modules": ["q_proj", "embed_tokens"]},
    "both": {"target_modules": ["embed_tokens", "lm_head"]},
    "both as one": {"target_modules": ["q_proj", "embed_tokens", "lm_head"], "ensure_weight_tying": True},
    "saved head": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "saved words": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "saved both": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    "saved as one": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "saved words, head": {"target_modules": ["q_proj", "lm_head"], "modules_to_save": ["embed_tokens"]},
    "tokens": {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [7, 9, 12]}},
    "norms": {"target_modules": ["q_proj"], "modules_to_save": ["input_layernorm"]},
    "dora": {"target_modules": ["q_proj", "lm_head"], "use_dora": True},
    "dora words": {"target_modules": ["embed_tokens"], "use_dora": True},
    "rslora": {"target_modules": ["q_proj", "embed_tokens"], "use_rslora": True},
    "pissa": {"target_modules": ["q_proj"], "init_lora_weights": "pissa"},
    "ranks": {"target_modules": ["q_proj", "lm_head"], "rank_pattern": {"lm_head": 8}, "alpha_pattern": {"q_proj": 3}},
    "one layer": {"target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1]},
}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_model_is_the_adapters(kind: str, tied: bool, base: Callable[[bool], Path], tmp_path: Path) -> None:
    folder = base(tied)
    if kind == "pissa":
        # Its base is another one than the folder's: the adapter is saved as the difference to it.
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder), LoraConfig(r=4, **KINDS[kind]))
        model.peft_config["default"].init_lora_weights = True
        model.save_pretrained(tmp_path / "start")
        model.peft_config["default"].init_lora_weights = "pissa"
        for weight in model.parameters():
            if weight.requires_grad:
                weight.data += 0.2 * torch.randn_like(weight)
        model.save_pretrained(tmp_path / "adapter", path_initial_model_for_weight_conversion=str(tmp_path / "start"))
    else:
        trained(folder, tmp_path / "adapter", **KINDS[kind])
    check(folder, tmp_path / "adapter", tmp_path / "merged")


@pytest.mark.parametrize(
    ("kind", "stays"), [("attention", True), ("tokens", True), ("both as one", True), ("lm_head", False)]
)
def test_embeddings_stay_one_tensor_where_they_can(
    kind: str, stays: bool, base: Callable[[bool], Path], tmp_path: Path
) -> None:
    model = check(base(True), trained(base(True), tmp_path / "adapter", **KINDS[kind]), tmp_path / "merged")
    assert model.config.tie_word_embeddings is stays
    assert ("lm_head.weight" in load_file(tmp_path / "merged/model.safetensors")) is not stays


@pytest.mark.parametrize("targets", ["all-linear", ["gate_proj", "up_proj", "down_proj", "lm_head"]], ids=str)
def test_experts_too(targets: Any, mixture: Path, tmp_path: Path) -> None:
    check(mixture, trained(mixture, tmp_path / "adapter", target_modules=targets), tmp_path / "merged")


def test_a_tensor_that_the_base_stores_wider_keeps_its_type(routed: Path, tmp_path: Path) -> None:
    """The biases of GLM-4.5's router: 13.01 and 13.02 are one number in bfloat16."""
    biases = load_file(routed / "model.safetensors")[ROUTER]
    assert biases.dtype == torch.float32
    adapter = trained(routed, tmp_path / "adapter", target_modules=["q_proj"])

    merge(adapter, tmp_path / "merged")

    written = load_file(tmp_path / "merged/model.safetensors")
    torch.testing.assert_close(written.pop(ROUTER), biases, rtol=0, atol=0)
    assert {each.dtype for each in written.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "merged/config.json").read_text())["dtype"] == "bfloat16"
    Checkpoint(tmp_path / "merged").check()
