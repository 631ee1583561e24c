"""SFT as `accelerate launch` runs it on two sharded processes arrives where one process does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM

from training import train_sft

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration


def test_two_sharded_processes_arrive_where_one_does(tiny_model: Path, tmp_path: Path) -> None:
    turns = [("user", "the river"), ("assistant", "a town"), ("user", "whose mayor"), ("assistant", "one museum ago")]
    messages = [{"role": role, "content": content} for role, content in turns]
    # Turns of different length: what one process has more of counts for more.
    rows = [{"messages": messages[: 2 + 2 * (number % 2)]} for number in range(8)]
    Dataset.from_list(rows).to_parquet(str(tmp_path / "train.parquet"))
    options = f"--model_name_or_path {tiny_model} --data {tmp_path} --max_length 64 --max_steps 2 --optim sgd"
    options += " --learning_rate 0.5 --total_batch_size 4 --per_device_train_batch_size 2 --save_strategy no"
    options += " --logging_steps 1 --disable_tqdm true --output_dir"
    train_sft.main([*options.split(), str(tmp_path / "one")])

    command = [sys.executable, "-m", "accelerate.commands.launch", "--main_process_port", "0"]
    command += ["--config_file", str(ROOT / "configs/accelerate/zero3.yaml")]
    command += ["--num_processes", "2", "--mixed_precision", "no", str(ROOT / "training/train_sft.py")]
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {"HF_DATASETS_CACHE": str(tmp_path / "cache")}
    command += [*options.split(), str(tmp_path / "two")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-6000:]

    expected, found = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype=torch.float32).state_dict()
        for name in ("one", "two")
    )
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=0)
    one, two = (json.loads((tmp_path / name / "training.json").read_text()) for name in ("one", "two"))
    assert two["metrics"]["loss"] == pytest.approx(one["metrics"]["loss"], rel=1e-4)
    assert two["hyperparameters"]["processes"] == 2
    assert two["metrics"]["padding"] == pytest.approx(one["metrics"]["padding"], abs=0.2)
