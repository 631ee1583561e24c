"""KTO, ORPO and SimPO as `notewriter train` launches them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
