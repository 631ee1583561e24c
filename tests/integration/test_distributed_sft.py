"""SFT on two sharded processes, under what `accelerate launch` sets for them, arrives where one process does."""

import json
from pathlib import Path

import pytest
import ranks
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM

from notewriter.training import sft as train_sft

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def options(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A run of two steps on conversations of different lengths; its output folder is to be added."""
    turns = [("user", "the river"), ("assistant", "a town"), ("user", "whose mayor"), ("assistant", "one museum ago")]
    messages = [{"role": role, "content": content} for role, content in turns]
    # Turns of different length: what one process has more of counts for more.
    rows = [{"messages": messages[: 2 + 2 * (number % 2)]} for number in range(8)]
    data = tmp_path_factory.mktemp("data")
    Dataset.from_list(rows).to_parquet(str(data / "train.parquet"))
    values = f"--model_name_or_path {tiny_model} --data {data} --max_length 64 --max_steps 2 --optim sgd"
    values += " --learning_rate 0.5 --total_batch_size 4 --per_device_train_batch_size 2 --save_steps 2"
    values += " --logging_steps 1 --disable_tqdm true --bf16 false --output_dir"
    return values.split()


@pytest.fixture(scope="module")
def one(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process trained."""
    folder = tmp_path_factory.mktemp("one") / "run"
    train_sft.main([*options, str(folder)])
    return folder


@pytest.mark.parametrize("accelerate", ["zero3", "fsdp2"])
def test_two_sharded_processes_arrive_where_one_does(
    accelerate: str,
    options: list[str],
    one: Path,
    imported: list[str],
    training_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    two, log = tmp_path / "two", tmp_path / "log"
    line = ["--config_file", str(ROOT / f"configs/accelerate/{accelerate}.yaml"), "--mixed_precision", "no"]
    line += [str(Path(__file__).with_name("fsdp_on_cpu.py"))] if accelerate == "fsdp2" else []
    line += [str(ROOT / "training/train_sft.py"), *options, str(two)]
    environment = training_environment | {"HF_DATASETS_CACHE": str(tmp_path / "cache")}
    assert ranks.train(imported, line, environment, log) == [0, 0], log.read_text()[-6000:]

    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
    expected = weights(one)
    # Of the checkpoint as of the run: whole, not one process's share.
    for folder in (two, two / "checkpoint-2"):
        found = weights(folder)
        assert found.keys() == expected.keys()
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=0)
    record, alone = (json.loads((folder / "training.json").read_text()) for folder in (two, one))
    assert record["hyperparameters"]["processes"] == 2
    assert record["metrics"]["padding"] == pytest.approx(alone["metrics"]["padding"], abs=0.2)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def losses(folder: Path) -> list[float]:
    """The loss of each step."""
    history = json.loads((folder / "checkpoint-2/trainer_state.json").read_text())["log_history"]
    found = [entry["loss"] for entry in history if "loss" in entry]
    assert len(found) == 2
    return found
