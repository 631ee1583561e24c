"""A few steps of DPO of a real model on real pairs, in a process of its own: this file is its program."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .channel import own_channel
from .machine import Machine
from .results import Record

CONFIGURATION = Path(__file__).parents[2] / "configs/dpo/quickstart_smollm2.yaml"


def real_run(machine: Machine, where: str, dtype: str) -> Record:
    """The losses of a few steps of DPO of a real model on real pairs, in a process of its own."""
    cpu = where == "cpu"
    options = {
        "config": CONFIGURATION,
        "model_name_or_path": machine.model,
        "pairs": machine.pairs,
        "max_steps": machine.steps,
        "use_cpu": cpu,
        "bf16": dtype == "bf16",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    argv = [part for key, value in options.items() for part in (f"--{key}", str(value))]
    environment = dict(os.environ, **({"CUDA_VISIBLE_DEVICES": ""} if cpu else {}))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", __name__, *argv, "--output_dir", folder]
        start = time.perf_counter()
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"the run ended with status {run.returncode}: {run.stderr[-800:]}")
    return {"losses": json.loads(run.stdout.splitlines()[-1]), "total_seconds": time.perf_counter() - start}


def print_losses(argv: list[str]) -> None:
    """Train as training/train_dpo.py does and print the loss of each step as a JSON array."""
    from trl import ModelConfig

    from notewriter import config
    from training import pairs, rows, weights
    from training.options import DPOArguments, DPOConfiguration
    from training.tokenizer import load_tokenizer, stop_tokens
    from training.trainers import build_dpo_trainer

    channel = own_channel()
    arguments, training, model = config.parse([DPOArguments, DPOConfiguration, ModelConfig], argv)
    base, files = weights.named_base(model), rows.find_splits(arguments.pairs, "--pairs")
    tokenizer = load_tokenizer(base, model.model_revision, arguments.chat_template_kwargs)
    stops = stop_tokens(base, model.model_revision, tokenizer)
    datasets, _ = pairs.load(files, tokenizer, stops, training, arguments)
    trainer = build_dpo_trainer(base, tokenizer, datasets, arguments, training, model)
    trainer.train()
    channel.write(json.dumps([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]) + "\n")
    channel.flush()


if __name__ == "__main__":
    print_losses(sys.argv[1:])
