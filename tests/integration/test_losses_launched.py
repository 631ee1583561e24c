"""KTO, ORPO and SimPO in one process and in two: one of each by `notewriter train`, the others by what it launches."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration

METHODS = {
    "kto": "kto",
    "orpo": "dpo --loss_type orpo --prefix_sharing true",
    "simpo": "dpo --loss_type simpo --beta 2",
}

Train = Callable[[str, str], None]


@pytest.fixture
def launch(training_environment: dict[str, str], tmp_path: Path) -> Train:
    """Train by `notewriter train`, under a profile and with a method and its options."""
    environment = training_environment | {"HF_DATASETS_CACHE": str(tmp_path / "cache")}

    def run(profile: str, options: str) -> None:
        method, *others = options.split()
        command = [sys.executable, "-m", "notewriter.cli", "train", method, "--accelerate", profile, *others]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]

    return run


@pytest.fixture
def fork(training_environment: dict[str, str], imported: list[str], tmp_path: Path) -> Train:
    """As `launch`, with processes that have not to import the libraries (`ranks.py`)."""
    environment = training_environment | {"HF_DATASETS_CACHE": str(tmp_path / "cache")}

    def run(profile: str, options: str) -> None:
        method, *others = options.split()
        line = ["--config_file", str(ROOT / f"configs/accelerate/{profile}.yaml")]
        line += [str(ROOT / f"training/train_{method}.py"), *others]
        log, processes = tmp_path / f"{profile}.log", {"cpu": 1, "cpu_ddp": 2}[profile]
        codes = ranks.train(imported, line, environment, log, processes)
        assert codes == [0] * processes, log.read_text()[-4000:]

    return run


@pytest.mark.parametrize("loss", METHODS)
def test_a_loss_is_trained_with_and_recorded(
    loss: str, launch: Train, fork: Train, tiny_model: Path, tiny_pairs: Path, tmp_path: Path
) -> None:
    options = f"{METHODS[loss]} --model_name_or_path {tiny_model} --pairs {tiny_pairs}"
    options += " --max_length 64 --max_steps 2 --total_batch_size 4 --per_device_train_batch_size 2 --logging_steps 1"
    options += " --eval_strategy steps --eval_steps 2 --bf16 false --disable_tqdm true --output_dir run"

    train = launch if loss == "kto" else fork
    train("cpu", options)

    record = json.loads((tmp_path / "run/training.json").read_text())
    assert (record["method"], record["steps"]) == (METHODS[loss].split()[0], 2)
    assert str(loss) in str(record["hyperparameters"]["loss_type"])
    assert {"loss", "eval_loss", "rewards/margins"} <= record["metrics"].keys()


@pytest.mark.parametrize(
    ("losses", "launched"),
    [
        ("--loss_type simpo sft --beta 2.5", True),
        ("--loss_type sigmoid sft --loss_weights 1 0.2", False),
        ("--loss_type orpo", False),
    ],
)
def test_two_processes_train_what_one_does(
    losses: str,
    launched: bool,
    launch: Train,
    fork: Train,
    tiny_model: Path,
    make_pair: Callable[[int], dict[str, Any]],
    write_pairs: Callable[..., Path],
    tmp_path: Path,
) -> None:
    pairs = [make_pair(number) for number in range(16)]
    for number, pair in enumerate(pairs):
        pair["chosen"][0]["content"] += " river crosses" * (number % 4)
    folder = write_pairs(pairs)
    before = load_file(tiny_model / "model.safetensors")

    def change(train: Train, profile: str, rows: int) -> torch.Tensor:
        """What two steps of SGD on eight pairs each change of the weights."""
        options = f"dpo --model_name_or_path {tiny_model} --pairs {folder} {losses} --optim sgd --bf16 false"
        options += f" --max_length 64 --max_steps 2 --total_batch_size 8 --per_device_train_batch_size {rows}"
        options += " --train_sampling_strategy sequential --learning_rate 0.1 --lr_scheduler_type constant"
        options += f" --max_grad_norm 0 --save_strategy no --disable_tqdm true --output_dir {profile}"
        train(profile, options)
        after = load_file(tmp_path / profile / "model.safetensors")
        return torch.cat([(after[name].double() - before[name].double()).flatten() for name in sorted(before)])

    whole, shared = change(fork, "cpu", 8), change(launch if launched else fork, "cpu_ddp", 1)
    assert (shared - whole).norm() < 1e-4 * whole.norm()
