"""KTO, ORPO and SimPO as `notewriter train` launches them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.integration

METHODS = {
    "kto": "kto",
    "orpo": "dpo --loss_type orpo --prefix_sharing true",
    "simpo": "dpo --loss_type simpo --beta 2",
}


@pytest.mark.parametrize("loss", METHODS)
def test_a_loss_is_trained_with_and_recorded(loss: str, tiny_model: Path, tiny_pairs: Path, tmp_path: Path) -> None:
    options = f"train {METHODS[loss]} --accelerate cpu --model_name_or_path {tiny_model} --pairs {tiny_pairs}"
    options += " --max_length 64 --max_steps 2 --total_batch_size 4 --per_device_train_batch_size 2 --logging_steps 1"
    options += " --eval_strategy steps --eval_steps 2 --bf16 false --disable_tqdm true --output_dir run"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}

    done = subprocess.run(
        [sys.executable, "-m", "notewriter.cli", *options.split()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    record = json.loads((tmp_path / "run/training.json").read_text())
    assert (record["method"], record["steps"]) == (METHODS[loss].split()[0], 2)
    assert str(loss) in str(record["hyperparameters"]["loss_type"])
    assert {"loss", "eval_loss", "rewards/margins"} <= record["metrics"].keys()


def change(profile: str, rows: int, losses: str, model: Path, pairs: Path, folder: Path) -> torch.Tensor:
    """What two steps of SGD on eight pairs each change of the weights."""
    options = f"train dpo --accelerate {profile} --model_name_or_path {model} --pairs {pairs} {losses} --optim sgd"
    options += f" --max_length 64 --max_steps 2 --total_batch_size 8 --per_device_train_batch_size {rows} --bf16 false"
    options += " --train_sampling_strategy sequential --learning_rate 0.1 --lr_scheduler_type constant"
    options += f" --max_grad_norm 0 --save_strategy no --disable_tqdm true --output_dir {profile}-{rows}"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "notewriter.cli", *options.split()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    before, after = load_file(model / "model.safetensors"), load_file(folder / f"{profile}-{rows}/model.safetensors")
    return torch.cat([(after[name].double() - before[name].double()).flatten() for name in sorted(before)])


@pytest.mark.parametrize(
    "losses", ["--loss_type simpo sft --beta 2.5", "--loss_type sigmoid sft --loss_weights 1 0.2", "--loss_type orpo"]
)
def test_two_processes_train_what_one_does(
    losses: str,
    tiny_model: Path,
    make_pair: Callable[[int], dict[str, Any]],
    write_pairs: Callable[..., Path],
    tmp_path: Path,
) -> None:
    pairs = [make_pair(number) for number in range(16)]
    for number, pair in enumerate(pairs):
        pair["chosen"][0]["content"] += " river crosses" * (number % 4)
    folder = write_pairs(pairs)
    whole = change("cpu", 8, losses, tiny_model, folder, tmp_path)
    shared = change("cpu_ddp", 1, losses, tiny_model, folder, tmp_path)
    assert (shared - whole).norm() < 1e-4 * whole.norm()
