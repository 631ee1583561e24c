"""A round that starts from a LoRA adapter, merged into its base; the reference is its start."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import ModelConfig

from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import Checkpoint
from notewriter.training import dpo as train_dpo
from notewriter.training import sft as train_sft
from notewriter.training.model import adapters
from notewriter.training.model.adapters import merge

Options = Callable[..., list[str]]


@pytest.fixture
def options(four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path) -> Options:
    # The base's weights stay where they are: an adapter names them.
    return partial(
        four_steps,
        pairs=write_pairs(),
        learning_rate=1e-2,
        loss_type="sigmoid",
        use_peft=True,
        lora_r=4,
        lora_target_modules="all-linear",
        reference_cache=tmp_path / "reference",
    )


@pytest.fixture
def first_round(options: Options, tmp_path: Path) -> Path:
    """An adapter that was trained on the tiny model."""
    train_dpo.main(options(output_dir=tmp_path / "first"))
    return tmp_path / "first"


def test_an_adapter_names_the_revision_of_its_base_on_the_hub() -> None:
    def revision(base: str) -> str | None:
        model = ModelConfig(model_name_or_path=base, model_revision="v2", use_peft=True)
        found: str | None = adapters.settings_of(model).revision
        return found

    assert revision("owner/name") == "v2"
    # Such as the folder that an adapter was merged into, whose revision this is.
    assert revision("runs/second/base") is None


def history(run: Path) -> list[dict[str, Any]]:
    (state,) = sorted(run.glob("checkpoint-4/trainer_state.json"))
    return [entry for entry in json.loads(state.read_text())["log_history"] if "loss" in entry]


def logits(base: Path, *adapters: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    for adapter in adapters:
        model = PeftModel.from_pretrained(model, adapter)
    with torch.no_grad():
        return model(torch.arange(6, 12)[None]).logits


def begins_at_its_reference(run: Path) -> bool:
    """Before the first update, the policy is the reference: no reward, and a loss of log 2."""
    first = history(run)[0]
    return abs(first["rewards/chosen"]) < 1e-5 and abs(first["loss"] - 0.6931) < 1e-3


def test_a_new_adapter_belongs_to_the_merged_model_of_the_round_before(
    options: Options, first_round: Path, tiny_model: Path, tmp_path: Path
) -> None:
    train_dpo.main(options(model_name_or_path=first_round, output_dir=tmp_path / "second"))

    second = tmp_path / "second"
    assert begins_at_its_reference(second)
    assert Checkpoint(second).base.path == str(second / "base")
    record = json.loads((second / "training.json").read_text())
    assert record["base_model_fingerprint"] == Checkpoint(second / "base").fingerprint()
    torch.testing.assert_close(logits(second / "base"), logits(tiny_model, first_round), rtol=1e-4, atol=1e-5)
    assert (logits(second / "base", second) - logits(second / "base")).abs().max() > 1e-4


def test_an_adapter_that_was_trained_again_is_merged_again(first_round: Path, tmp_path: Path) -> None:
    """An earlier start may have failed after it merged, before it recorded what it starts from."""
    training = TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True)
    run = str(tmp_path / "second")
    merged = Path(adapters.whole_base(str(first_round), run, training)) / "model.safetensors"
    before = merged.stat().st_ino
    adapters.whole_base(str(first_round), run, training)
    assert merged.stat().st_ino == before

    file = first_round / "adapter_model.safetensors"
    save_file({name: 2 * value for name, value in load_file(file).items()}, file)
    adapters.whole_base(str(first_round), run, training)
    torch.testing.assert_close(logits(tmp_path / "second/base"), logits_of_merged(first_round, tmp_path / "anew"))


def logits_of_merged(adapter: Path, folder: Path) -> torch.Tensor:
    merge(adapter, folder)
    return logits(folder)


def test_all_parameters_of_a_merged_adapter_are_trained_too(
    options: Options, first_round: Path, tmp_path: Path
) -> None:
    train_dpo.main(options(model_name_or_path=first_round, output_dir=tmp_path / "second", use_peft=False))

    assert begins_at_its_reference(tmp_path / "second")
    assert (logits(tmp_path / "second") - logits(tmp_path / "second/base")).abs().max() > 1e-4


def test_sft_starts_from_an_adapter_too(
    options: Options, first_round: Path, four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    train_sft.main(four_steps(data=write_pairs(), model_name_or_path=first_round, output_dir=tmp_path / "second"))

    torch.testing.assert_close(logits(tmp_path / "second/base"), logits_of_merged(first_round, tmp_path / "anew"))


def test_pairs_of_earlier_rounds_are_mixed_in_by_their_share(
    four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    now, earlier = write_pairs(), tmp_path / "earlier"
    shutil.copytree(now, earlier)
    arguments = four_steps(pairs=now, learning_rate=1e-3, max_steps=1, save_steps=1)

    train_dpo.main([*arguments, "--mix", json.dumps({str(earlier): 0.25})])

    record = json.loads((tmp_path / "run/training.json").read_text())
    assert sum(record["rows"]["train"].values()) == 16 + 4
    assert record["mix"] == {str(earlier): 0.25}
    with pytest.raises(UserError, match=r"has 16 rows, and a ratio of 2\.0 asks for 32; give at most 1\.0"):
        train_dpo.main([*four_steps(pairs=now, output_dir=tmp_path / "other"), "--mix", f'{{"{earlier}": 2.0}}'])
