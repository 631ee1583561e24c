"""A base whose generation settings transformers loads and refuses to save is trained, merged and saved all the same."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GenerationConfig

from notewriter.ground.errors import UserError
from notewriter.training import dpo, merge, preflight, sft

Options = Callable[..., list[str]]


@pytest.fixture
def base_with(tiny_model: Path, tmp_path: Path) -> Callable[[dict[str, Any], str], Path]:
    """The tiny model with these generation settings in one of its files."""

    def build(settings: dict[str, Any], file: str = "generation_config.json") -> Path:
        folder = Path(shutil.copytree(tiny_model, tmp_path / "base"))
        if file == "config.json":
            (folder / "generation_config.json").unlink()
        path = folder / file
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))
        return folder

    return build


REPAIRED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"temperature": 0.6, "top_p": 0.9}, {"do_sample": True, "temperature": 0.6}, "do_sample: true beside temperature"),
    ({"top_k": 20, "do_sample": None}, {"do_sample": True, "top_k": 20}, "do_sample: true beside top_k"),
    ({"length_penalty": 0.8}, {"length_penalty": None}, "no length_penalty, which has no effect"),
    ({"early_stopping": True}, {"early_stopping": None}, "no early_stopping"),
    ({"output_attentions": True}, {"output_attentions": None}, "no output_attentions"),
    ({"use_cache": False, "cache_implementation": "hybrid"}, {"cache_implementation": None}, "no cache_implementation"),
    ({"pad_token_id": -1}, {"pad_token_id": 0}, "no pad_token_id"),
]


@pytest.mark.parametrize(("settings", "saved", "said"), REPAIRED, ids=[next(iter(each)) for each, *_ in REPAIRED])
def test_every_step_and_the_model_are_saved(
    settings: dict[str, Any],
    saved: dict[str, Any],
    said: str,
    base_with: Callable[..., Path],
    four_steps: Options,
    write_pairs: Callable[..., Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    dpo.main(four_steps(model_name_or_path=base_with(settings), pairs=write_pairs()))

    assert said in caplog.text
    for folder in (tmp_path / "run", tmp_path / "run/checkpoint-2"):
        assert (folder / "model.safetensors").is_file()
        written = GenerationConfig.from_pretrained(folder)
        assert {key: getattr(written, key) for key in saved} == saved


def test_settings_of_an_old_config_json_too(
    base_with: Callable[..., Path], four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    """Without generation_config.json transformers takes what config.json says of generating."""
    base = base_with({"temperature": 0.7}, "config.json")
    sft.main(four_steps(model_name_or_path=base, data=write_pairs()))
    assert GenerationConfig.from_pretrained(tmp_path / "run").do_sample is True


def test_an_adapter_of_such_a_base_is_merged(
    base_with: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = base_with({"temperature": 0.6})
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(target_modules=["q_proj"]))
    model.save_pretrained(tmp_path / "adapter")
    caplog.set_level(logging.INFO)

    merge.main(["--checkpoint", str(tmp_path / "adapter"), "--output_dir", str(tmp_path / "merged")])

    assert GenerationConfig.from_pretrained(tmp_path / "merged").do_sample is True
    assert caplog.text.count("do_sample: true beside temperature") == 1


def test_preflight_says_it(
    base_with: Callable[..., Path], write_pairs: Callable[..., Path], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    base = base_with({"temperature": 0.6})
    preflight.main(
        ["--pairs", str(write_pairs()), "--model_name_or_path", str(base), "--output_dir", str(tmp_path / "run")]
    )
    assert "do_sample: true beside temperature" in caplog.text


@pytest.mark.parametrize("command", ["train", "preflight"])
def test_sampling_at_a_temperature_of_0_is_refused_before_the_first_step(
    command: str, base_with: Callable[..., Path], four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    arguments = four_steps(model_name_or_path=base_with({"temperature": 0.0}), pairs=write_pairs())
    with pytest.raises(UserError, match=r"base: .* temperature without do_sample: true, .*; remove them from generat"):
        {"train": dpo, "preflight": preflight}[command].main(arguments)  # type: ignore[attr-defined]
    assert not list((tmp_path / "run").glob("checkpoint-*"))
