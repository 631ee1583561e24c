"""Options of TRL and PEFT that docs/training.md lists: each runs on the CPU, and is recorded."""

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from notewriter.ground.errors import UserError
from notewriter.training import dpo, preflight, sft
from notewriter.training.options import check_apart

Options = Callable[..., list[str]]

LORA = {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear", "gradient_checkpointing": True}


@pytest.fixture
def options(four_steps: Options, write_pairs: Callable[..., Path]) -> Options:
    return partial(four_steps, pairs=write_pairs(), learning_rate=1e-3)


@pytest.fixture
def sft_options(four_steps: Options, write_pairs: Callable[..., Path]) -> Options:
    return partial(four_steps, data=write_pairs(), learning_rate=1e-3)


def trained(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "training.json").read_text())
    return record


@pytest.mark.parametrize("variant", ["use_rslora", "use_dora"])
def test_lora_of_another_kind_trains_with_shared_prompts(variant: str, options: Options, tmp_path: Path) -> None:
    dpo.main(options(**LORA, **{variant: True}, prefix_sharing=True))

    assert trained(tmp_path / "run")["hyperparameters"][variant] is True
    assert json.loads((tmp_path / "run/adapter_config.json").read_text())[variant] is True
    with safe_open(tmp_path / "run/adapter_model.safetensors", "pt") as weights:
        kinds = {name.rpartition(".lora_")[2] for name in weights.keys()}  # noqa: SIM118
    assert ("magnitude_vector" in kinds) == (variant == "use_dora")


def test_noise_on_embeddings_is_for_training_alone(sft_options: Options, tmp_path: Path) -> None:
    """NEFTune (Jain et al. 2023, arXiv 2310.05914)."""
    evaluating = {"eval_strategy": "steps", "eval_steps": 4, "learning_rate": 0}
    sft.main(sft_options(output_dir=tmp_path / "plain", **evaluating))
    sft.main(sft_options(output_dir=tmp_path / "noisy", neftune_noise_alpha=15, **evaluating))

    plain, noisy = (trained(tmp_path / run) for run in ("plain", "noisy"))
    assert noisy["hyperparameters"]["neftune_noise_alpha"] == 15
    assert noisy["metrics"]["train_loss"] != plain["metrics"]["train_loss"]
    assert noisy["metrics"]["eval_loss"] == plain["metrics"]["eval_loss"]


@pytest.mark.parametrize(
    ("changes", "package", "fault"),
    [
        (
            {"load_in_4bit": True, "use_peft": True},
            "bitsandbytes",
            "load_in_4bit: needs the package bitsandbytes; .*qlora",
        ),
        ({"optim": "adamw_bnb_8bit"}, "bitsandbytes", "optim: needs the package bitsandbytes; .*qlora"),
        ({"optim": "paged_adamw_8bit"}, "bitsandbytes", "optim: needs the package bitsandbytes; .*qlora"),
        (
            {"use_liger_kernel": True},
            "liger_kernel",
            "use_liger_kernel: needs the package liger-kernel; run pip install",
        ),
        (
            {"attn_implementation": "kernels-community/flash-attn2"},
            "kernels",
            "attn_implementation: needs the package kernels; run pip install kernels",
        ),
    ],
)
def test_a_package_that_is_missing_is_named(
    changes: dict[str, Any], package: str, fault: str, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=fault):
        dpo.main(options(**changes))


def test_activations_are_moved_from_a_gpu_alone(options: Options) -> None:
    with pytest.raises(UserError, match="activation_offloading: moves activations from a GPU to main memory, and this"):
        dpo.main(options(activation_offloading=True))


def test_quantized_weights_are_not_trained_themselves(options: Options) -> None:
    with pytest.raises(UserError, match="load_in_4bit: quantized weights cannot be trained; add --use_peft true"):
        dpo.main(options(load_in_4bit=True))


@pytest.mark.parametrize("attention", ["kernels-community/flash-attn3", "kernels-community/vllm-flash-attn3@v1"])
def test_flash_attention_of_the_hub_keeps_packed_conversations_apart(
    attention: str, sft_options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kernels", None)
    # It gets as far as the package.
    with pytest.raises(UserError, match="attn_implementation: needs the package kernels"):
        sft.main(sft_options(packing=True, attn_implementation=attention))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"packing": True, "attn_implementation": "someone/attention"},
            "packing: someone/attention may not keep packed",
        ),
        ({"padding_free": True}, "padding_free: TRL allows it without packing only where max_length is not set"),
    ],
)
def test_packing_that_may_not_be_exact_is_refused(changes: dict[str, Any], fault: str, sft_options: Options) -> None:
    with pytest.raises(UserError, match=re.escape(fault)):
        sft.main(sft_options(**changes))


def test_qlora_trains_with_shared_prompts_and_is_recorded(options: Options, tiny_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    # A block of 64 weights has one scale.
    size = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    LlamaForCausalLM(LlamaConfig.from_pretrained(base, **size)).save_pretrained(base)
    quantized = {"load_in_4bit": True, "use_bnb_nested_quant": True}

    dpo.main(options(model_name_or_path=base, **LORA, **quantized, prefix_sharing=True))

    record = trained(tmp_path / "run")
    assert record["parameters"] == "lora"
    assert record["hyperparameters"].items() >= {**quantized, "bnb_4bit_quant_type": "nf4"}.items()
    assert "bitsandbytes" in record["versions"]


def test_8_bit_adam_trains(options: Options, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    dpo.main(options(optim="adamw_bnb_8bit"))

    assert trained(tmp_path / "run")["hyperparameters"]["optim"] == "adamw_bnb_8bit"


SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        ("llama", {}, ""),
        ("qwen3", {"head_dim": 16, "use_sliding_window": True, "sliding_window": 8}, ""),
        (
            "lfm2",
            {"layer_types": ["conv", "full_attention"]},
            "has recurrent layers, which keep conversations apart only with flash-linear",
        ),
        ("gpt_oss", {"head_dim": 16, "num_local_experts": 2}, "does not tell eager attention"),
        ("falcon", {}, "has its own implementation of attention"),
    ],
)
def test_models_that_read_on_into_the_next_conversation_are_not_packed(
    kind: str, settings: dict[str, Any], reason: str
) -> None:
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES, **settings))
    with pytest.raises(UserError, match=f"packing: {kind} {reason}") if reason else contextlib.nullcontext():
        check_apart(network)


def test_one_layer_by_name_is_adapted(options: Options, tmp_path: Path) -> None:
    """TRL makes a text of it, which PEFT takes for a pattern of whole names."""
    named = {"use_peft": True, "lora_r": 4, "lora_target_modules": "q_proj"}
    preflight.main(options(**named))
    dpo.main(options(**named))
    assert json.loads((tmp_path / "run/adapter_config.json").read_text())["target_modules"] == ["q_proj"]
