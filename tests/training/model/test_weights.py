"""A base model whose files lack weights is not trained with random ones in their place."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from trl import ModelConfig

from notewriter.ground.errors import UserError
from notewriter.training import dpo, sft
from notewriter.training.model.weights import load_whole, loading_options, stored

LACKING = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def incomplete(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model without one of its matrices, as after a copy that was cut short."""
    folder = tmp_path / "incomplete"
    shutil.copytree(tiny_model, folder)
    weights = load_file(folder / "model.safetensors")
    del weights[LACKING]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("lora", [False, True])
def test_dpo_refuses_it(
    four_steps: Callable[..., list[str]], write_pairs: Callable[..., Path], incomplete: Path, tmp_path: Path, lora: bool
) -> None:
    with pytest.raises(UserError, match=rf"incomplete: its files lack 1 weights, such as {LACKING}; copy or save"):
        dpo.main(four_steps(pairs=write_pairs(), model_name_or_path=incomplete, use_peft=lora))
    assert not (tmp_path / "run/training.json").exists()


def test_weights_that_the_configuration_has_no_place_for_are_named(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As beside the config.json of a smaller model."""
    folder = tmp_path / "deeper"
    shutil.copytree(tiny_model, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.7.mlp.up_proj.weight"] = torch.zeros(64, 32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    load_whole(str(folder), trust_remote_code=False)
    assert "deeper: 1 of its weights, such as model.layers.7.mlp.up_proj.weight, are not loaded" in caplog.text


def test_sft_refuses_it(four_steps: Callable[..., list[str]], incomplete: Path, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "the town"}, {"role": "assistant", "content": "a river"}]
    Dataset.from_list([{"messages": messages, "dataset": "musique"}] * 4).to_parquet(str(tmp_path / "train.parquet"))
    with pytest.raises(UserError, match=rf"incomplete: its files lack 1 weights, such as {LACKING}"):
        sft.main(four_steps(data=tmp_path, model_name_or_path=incomplete))


@pytest.mark.parametrize(
    ("device", "map_of_devices"), [("cpu", None), ("cuda:0", {"": "cuda:0"})], ids=["the CPU", "a GPU"]
)
def test_on_a_gpu_the_whole_model_is_loaded_there(device: str, map_of_devices: dict[str, str] | None) -> None:
    training = SimpleNamespace(device=torch.device(device), model_init_kwargs=None)
    assert loading_options(training, ModelConfig("m")).get("device_map") == map_of_devices
    training.model_init_kwargs = {"device_map": "auto"}
    assert loading_options(training, ModelConfig("m"))["device_map"] == "auto"


def test_the_type_of_a_model_whose_configuration_names_none_is_that_of_most_weights(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "untyped"
    shutil.copytree(tiny_model, folder)
    weights = {name: each.bfloat16() for name, each in load_file(folder / "model.safetensors").items()}
    weights["model.norm.weight"] = weights["model.norm.weight"].float()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("dtype")
    (folder / "config.json").write_text(json.dumps(settings))
    assert stored(str(folder), "main").dtype == torch.bfloat16


ROUTER = "model.layers.1.mlp.gate.e_score_correction_bias"


def test_each_tensor_of_a_trained_model_has_the_type_that_the_base_stores_it_in(
    four_steps: Callable[..., list[str]], write_pairs: Callable[..., Path], routed: Path, tmp_path: Path
) -> None:
    base = load_file(routed / "model.safetensors")
    types = {name: each.dtype for name, each in base.items()}
    assert {name for name, dtype in types.items() if dtype == torch.float32} == {ROUTER}

    dpo.main(four_steps(pairs=write_pairs(), model_name_or_path=routed, keep_weights=True, learning_rate=1e-2))

    # The last of a run, and a checkpoint that was reduced to its weights.
    for folder in (tmp_path / "run", tmp_path / "run/checkpoint-2"):
        assert stored(str(folder), "main").dtype == torch.bfloat16
        written = load_file(folder / "model.safetensors")
        assert {name: each.dtype for name, each in written.items()} == types
        torch.testing.assert_close(written[ROUTER], base[ROUTER], rtol=0, atol=0)
        assert not torch.equal(written["model.layers.1.mlp.gate.weight"], base["model.layers.1.mlp.gate.weight"])
