"""SFT trains the assistant's turns, the same however they are batched or packed, and goes on where it stopped."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import ModelConfig

from notewriter.ground import config
from notewriter.ground.errors import UserError
from notewriter.training import sft as train_sft
from notewriter.training.inputs import conversations
from notewriter.training.options import SFTArguments, SFTConfiguration

Options = Callable[..., list[str]]
WORDS = ["the", "river", "crosses", "a", "town", "whose", "mayor", "opened", "one", "museum", "of", "clocks", "ago"]


def chain(number: int, searches: int = 2) -> dict[str, Any]:
    """A chain of so many searches, whose turns differ in length."""

    def text(words: int, shift: int) -> str:
        return " ".join(WORDS[(number + shift + word) % len(WORDS)] for word in range(words))

    messages = [{"role": "user", "content": text(3 + number % 4, 0)}]
    for search in range(searches):
        messages.append({"role": "assistant", "content": text(1 + (number + search) % 3, 3)})
        messages.append({"role": "user", "content": text(4, 5 + search)})
    messages.append({"role": "assistant", "content": text(1, 7)})
    return {"messages": messages, "question_id": f"q{number}", "dataset": "town", "f1": 1.0, "steps": searches}


@pytest.fixture
def chains(tmp_path: Path) -> Path:
    folder = tmp_path / "chains"
    folder.mkdir()
    Dataset.from_list([chain(number, number % 3) for number in range(16)]).to_parquet(str(folder / "train.parquet"))
    Dataset.from_list([chain(number) for number in range(4)]).to_parquet(str(folder / "dev.parquet"))
    return folder


@pytest.fixture
def options(four_steps: Options, chains: Path) -> Options:
    return partial(four_steps, data=chains, learning_rate=1e-2)


def losses(folder: Path) -> list[float]:
    """The loss of each step, from the last checkpoint's state."""
    state = max(folder.glob("checkpoint-*/trainer_state.json"), key=lambda file: int(file.parent.name.split("-")[1]))
    return [entry["loss"] for entry in json.loads(state.read_text())["log_history"] if "loss" in entry]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def test_a_run_learns_and_records_what_it_did(options: Options, tiny_model: Path, tmp_path: Path) -> None:
    train_sft.main(options(max_steps=12, eval_strategy="steps", eval_steps=12, save_strategy="no"))

    record = json.loads((tmp_path / "run/training.json").read_text())
    assert (record["schema"], record["method"], record["parameters"]) == ("notewriter/training/1", "sft", "full")
    assert record["rows"] == {"train": {"town": 16}, "dev": {"town": 4}}
    assert record["metrics"]["loss"] < 2.5
    assert {"eval_loss", "mean_token_accuracy"} <= record["metrics"].keys()
    assert len(record["data_sha256"]) == 64
    template = AutoTokenizer.from_pretrained(tmp_path / "run").chat_template
    assert template == AutoTokenizer.from_pretrained(tiny_model).chat_template


def test_continuation_on_another_base_is_refused(options: Options, tiny_model: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    train_sft.main(options(model_name_or_path=base))
    assert json.loads((tmp_path / "run/training.json").read_text())["base_model_fingerprint"]
    (tmp_path / "run/training.json").unlink()
    model = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        model.lm_head.weight += 0.1
    model.save_pretrained(base)

    with pytest.raises(UserError, match=r"run: contains a run with other contents of model_name_or_path: .*base,"):
        train_sft.main(options(model_name_or_path=base))


def test_the_loss_is_the_mean_over_the_assistants_tokens_alone(
    options: Options, tiny_model: Path, chains: Path, tmp_path: Path
) -> None:
    train_sft.main(options(max_steps=1, total_batch_size=16, save_steps=1, per_device_train_batch_size=4))

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    total, count = 0.0, 0
    for row in conversations.read(chains / "train.parquet"):
        labelled = conversations.label(row["messages"], 0, tokenizer, frozenset([tokenizer.eos_token_id]))
        ids, labels = (torch.tensor([labelled[name]]) for name in ("input_ids", "labels"))
        with torch.no_grad():
            logits = model(ids).logits[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, labels[0, 1:], reduction="sum").item()
        count += int((labels[0, 1:] != conversations.IGNORED).sum())
    assert losses(tmp_path / "run") == pytest.approx([total / count], rel=1e-3)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_conversations_do_not_see_each_other(options: Options, tmp_path: Path, attention: str) -> None:
    shared = {"max_steps": 1, "save_steps": 1, "optim": "sgd", "learning_rate": 0.5, "attn_implementation": attention}
    train_sft.main(options(output_dir=tmp_path / "padded", total_batch_size=16, **shared))
    # All 16 conversations are in two rows of 256 tokens.
    packed = {"packing": True, "max_length": 256, "total_batch_size": 2, "per_device_train_batch_size": 2}
    train_sft.main(options(output_dir=tmp_path / "packed", **shared, **packed))

    assert losses(tmp_path / "packed") == pytest.approx(losses(tmp_path / "padded"), rel=1e-5)
    expected, found = weights(tmp_path / "padded"), weights(tmp_path / "packed")
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-5)


def test_packed_rows_do_not_depend_on_the_processes_that_tokenise(options: Options, tmp_path: Path) -> None:
    shared = {"max_steps": 1, "save_steps": 1}
    train_sft.main(options(output_dir=tmp_path / "padded", total_batch_size=16, **shared))
    # All 16 conversations are in one row, and not those of each process in another.
    shared |= {"total_batch_size": 1, "per_device_train_batch_size": 1}
    train_sft.main(options(output_dir=tmp_path / "packed", packing=True, max_length=512, dataset_num_proc=2, **shared))
    assert losses(tmp_path / "packed") == pytest.approx(losses(tmp_path / "padded"), rel=1e-5)


def test_four_small_batches_are_one_of_four(options: Options, tmp_path: Path) -> None:
    for size in (1, 4):
        folder = tmp_path / f"batch-{size}"
        train_sft.main(options(output_dir=folder, per_device_train_batch_size=size, optim="sgd", learning_rate=0.5))
    expected, found = weights(tmp_path / "batch-4"), weights(tmp_path / "batch-1")
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-5)
    assert losses(tmp_path / "batch-1") == pytest.approx(losses(tmp_path / "batch-4"), rel=1e-4)


def test_a_stopped_run_has_the_losses_of_one_that_was_not(options: Options, tmp_path: Path) -> None:
    train_sft.main(options())
    undisturbed, whole = losses(tmp_path / "run"), weights(tmp_path / "run")
    assert len(undisturbed) == 4
    # What is left of a run that was killed after its second step.
    for name in ("training.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    (tmp_path / "run/checkpoint-4").rename(tmp_path / "checkpoint-4")

    train_sft.main(options())

    assert losses(tmp_path / "run") == pytest.approx(undisturbed, rel=1e-6)
    resumed = weights(tmp_path / "run")
    assert all(torch.allclose(whole[name], resumed[name], atol=1e-6) for name in whole)


def test_another_set_is_mixed_in(options: Options, tmp_path: Path) -> None:
    general = tmp_path / "general.jsonl"
    general.write_text('{"prompt": "the town", "completion": "a river"}\n' * 8)

    train_sft.main(options(mix=json.dumps({str(general): 0.25}), max_steps=1, save_strategy="no"))

    record = json.loads((tmp_path / "run/training.json").read_text())
    assert record["rows"]["train"] == {"general": 4, "town": 16}
    general.write_text('{"prompt": "the town", "completion": "a mayor"}\n' * 8)
    with pytest.raises(UserError, match="contains a run with other contents of data, which have changed"):
        train_sft.main(options(mix=json.dumps({str(general): 0.25}), max_steps=1, save_strategy="no"))


def test_the_better_side_of_pairs_can_be_trained_with_lora(
    options: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    train_sft.main(options(data=write_pairs(), use_peft=True, lora_r=4, lora_target_modules="all-linear"))

    adapter = load_file(tmp_path / "run/adapter_model.safetensors")
    assert all(torch.any(tensor != 0) for name, tensor in adapter.items() if "lora_B" in name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "/nowhere/chains"}, "give --data a Parquet or JSON Lines file"),
        ({"max_length": 20}, r"rows are longer than max_length 20 .* Give --max_length"),
        ({"packing": True, "packing_strategy": "wrapped"}, "packing: needs packing_strategy bfd"),
        ({"packing": True, "attn_implementation": "linear"}, "packing: linear may not keep"),
        ({"assistant_only_loss": True}, "assistant_only_loss: cannot be set"),
        ({"mix": '{"/nowhere/general.parquet": 1}'}, "no such file or folder; give mix"),
    ],
)
def test_mistakes_are_named(options: Options, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        train_sft.main(options(**changes))


CONFIGURATIONS = sorted((Path(__file__).parents[2] / "configs/sft").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_recipes_have_no_unknown_keys(path: Path) -> None:
    # bf16 and many processes need hardware; everything else is read as it would be in the run.
    arguments, training, model = config.parse(
        [SFTArguments, SFTConfiguration, ModelConfig],
        ["--config", str(path), "--bf16", "false"],
    )

    values = yaml.safe_load(path.read_text())
    assert (arguments.data, training.output_dir) == (values["data"], values["output_dir"])
    assert model.model_name_or_path == values["model_name_or_path"]
    batch = training.per_device_train_batch_size * training.gradient_accumulation_steps
    assert batch == values.get("total_batch_size", batch)


def test_the_model_and_its_checkpoints_have_what_the_base_says_of_images(
    options: Options, tiny_model: Path, tmp_path: Path
) -> None:
    base = shutil.copytree(tiny_model, tmp_path / "base")
    (base / "processor_config.json").write_text("{}")
    train_sft.main(options(model_name_or_path=base, output_dir=tmp_path / "run", save_steps=2))
    folders = [tmp_path / "run", *sorted((tmp_path / "run").glob("checkpoint-*"))]
    assert len(folders) > 1 and all((folder / "processor_config.json").is_file() for folder in folders)
