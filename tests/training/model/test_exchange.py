"""What a trained or merged folder says to those who read it: the older form of every setting, equal files if equal."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, Gemma3TextConfig, Glm4Config, LlamaConfig, Phi3Config, Qwen2Config

from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import Checkpoint
from notewriter.training import dpo
from notewriter.training.model.adapters import adapting
from notewriter.training.model.exchange import settle
from notewriter.training.model.weights import Stored

Options = Callable[..., list[str]]

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 1024}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LONG = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "pad_token_id": 0}

FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (LlamaConfig, {"rope_theta": 100000.0, "rope_scaling": None}),
    "Llama 3.1": (LlamaConfig, {"rope_theta": 500000.0, "rope_scaling": LLAMA3}),
    "YaRN": (Qwen2Config, {"rope_theta": 1000000.0, "rope_scaling": YARN}),
    "Gemma 3": (
        Gemma3TextConfig,
        {
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    "GLM-4": (Glm4Config, {"rope_theta": 20000.0, "partial_rotary_factor": 0.5, "rope_scaling": None}),
    "Phi-3": (Phi3Config, {"rope_theta": 20000.0, "original_max_position_embeddings": 512, "rope_scaling": LONG}),
}
"""The settings of rotary embeddings as transformers 4.57 reads them, whose logits were then those of transformers 5."""


@pytest.mark.parametrize("form", FORMS)
def test_transformers_4_finds_the_rotary_embeddings_where_it_looks(form: str, tmp_path: Path) -> None:
    kind, older = FORMS[form]
    kind(**SMALL, **json.loads(json.dumps(older))).save_pretrained(tmp_path)
    before = AutoConfig.from_pretrained(tmp_path).to_dict()

    settle(tmp_path, Stored(Checkpoint(tmp_path), None))

    written = json.loads((tmp_path / "config.json").read_text())
    assert {key: written.get(key) for key in older} == older
    assert AutoConfig.from_pretrained(tmp_path).to_dict() == before


def test_a_trained_model_and_its_checkpoints_have_both_forms(
    four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    dpo.main(four_steps(pairs=write_pairs()))
    for folder in (tmp_path / "run", tmp_path / "run/checkpoint-2"):
        settings = json.loads((folder / "config.json").read_text())
        assert settings["rope_theta"] == settings["rope_parameters"]["rope_theta"]
        # Training itself computes without one.
        assert settings["use_cache"] is True
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
        assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_equal_adapters_have_equal_fingerprints(
    four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    dpo.main(four_steps(pairs=write_pairs(), use_peft=True, lora_target_modules=["v_proj", "q_proj", "o_proj"]))
    settings = json.loads((tmp_path / "run/adapter_config.json").read_text())
    assert settings["target_modules"] == ["o_proj", "q_proj", "v_proj"]
    assert settings == json.loads((tmp_path / "run/checkpoint-4/adapter_config.json").read_text())


def test_a_dropout_that_experts_cannot_have_is_named() -> None:
    with (
        pytest.raises(UserError, match=r"lora_dropout: PEFT has no dropout for the experts .*; give --lora_dropout 0"),
        adapting(),
    ):
        raise ValueError("lora.ParamWrapper does not work with lora_dropout != 0.")


FOLLOWING = {"sync_ref_model": True, "ref_model_sync_steps": 1, "ref_model_mixup_alpha": 0.9, "learning_rate": 1e-2}


def history(run: Path) -> list[float]:
    log = json.loads((run / "checkpoint-4/trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in log if "loss" in entry]


def test_a_resumed_run_goes_on_with_the_reference_that_followed_its_model(
    four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = four_steps(pairs=write_pairs(), **FOLLOWING)
    dpo.main(command)
    undisturbed = history(run)
    (run / "training.json").unlink()
    shutil.rmtree(run / "checkpoint-4")
    dpo.main(command)
    assert history(run) == pytest.approx(undisturbed, rel=1e-6)

    (run / "training.json").unlink()
    shutil.rmtree(run / "checkpoint-4")
    (run / "checkpoint-2/reference.pt").unlink()
    with pytest.raises(UserError, match=r"reference\.pt: is not there, .*another reference \(sync_ref_model\)"):
        dpo.main(command)


def test_dev_figures_are_means_over_pairs(
    four_steps: Options, write_pairs: Callable[..., Path], make_pair: Callable[[int], Any], tmp_path: Path
) -> None:
    pairs = write_pairs([make_pair(number) for number in range(13)])
    figures = []
    for size in (1, 3):
        run = tmp_path / f"run{size}"
        evaluation = {"eval_strategy": "steps", "eval_steps": 4, "per_device_eval_batch_size": size}
        dpo.main(four_steps(pairs=pairs, **evaluation, learning_rate=1e-2, output_dir=run))
        metrics = json.loads((run / "training.json").read_text())["metrics"]
        figures.append(
            {name: each for name, each in metrics.items() if name.startswith(("eval_rewards", "eval_logps"))}
        )
    assert figures[0] and figures[1] == pytest.approx(figures[0], rel=1e-4)
