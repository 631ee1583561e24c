"""Compare the losses of training with shared prompts with those of TRL's unchanged DPOTrainer, step by step.

    python benchmarks/losses.py
    python benchmarks/losses.py --losses sigmoid ipo --settings LoRA ZeRO-3

Trains random models of two layers on random pairs in fp32 on the CPU, every combination of a loss and a setting
twice, with the same options, seed and AdamW: by the trainer of training/train_dpo.py with `prefix_sharing: true`, and
by TRL's DPOTrainer, which tokenises the pairs itself. DDP, FSDP2 and ZeRO-3 run in two processes that
`accelerate launch` starts, the others in one. A step has four pairs, which form one row unless the setting says
otherwise (two processes: two rows of two). The model of "sliding windows" is Gemma 3's, inside the model of images and
text that its checkpoints come in: one layer sees 32 tokens, the other all.

Prints the largest relative difference of a step's loss in each setting. The last line is a JSON object:

    loss_error       the largest of them all
    combinations     how many there are
    least_change     the smallest change of a loss over a run, relative to the first step's: a loss that does not
                     move would prove nothing

Finished combinations are stored in losses.jsonl of --output_dir and not repeated.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import (
    ByT5Tokenizer,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    set_seed,
)
from trl import DPOTrainer, ModelConfig, get_peft_config

from notewriter.ground import config, jsonl
from notewriter.training.inputs import pairs, rows
from notewriter.training.inputs.rendering import load_tokenizer, stop_tokens
from notewriter.training.model import weights
from notewriter.training.options import DPOArguments, DPOConfiguration
from notewriter.training.run.losses import LOSSES as TYPES
from notewriter.training.run.trainers import build

ROOT = Path(__file__).parents[1]

Combination = tuple[str, str]
"""A loss and a setting."""

LOSSES: dict[str, dict[str, Any]] = {
    **{name: {"loss_type": name} for name in TYPES},
    **{
        name: {"loss_type": name, "label_smoothing": 0.1}
        for name, loss in TYPES.items()
        if loss.reads("label_smoothing")
    },
    "sigmoid + 0.2 sft": {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.2]},
    "sigmoid, ld_alpha 0.5": {"loss_type": "sigmoid", "ld_alpha": 0.5},
    "sigmoid, use_weighting": {"loss_type": "sigmoid", "use_weighting": True},
    "sigmoid, js_divergence": {"loss_type": "sigmoid", "f_divergence_type": "js_divergence"},
    "sigmoid, precomputed": {"loss_type": "sigmoid", "precompute_ref_log_probs": True},
}
"""TRL's loss types, and other options that change how log-probs become a loss."""

TWO_PROCESSES = {"per_device_train_batch_size": 2}

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "one pair a row": ("cpu", {"per_device_train_batch_size": 1}),
    "four pairs a row": ("cpu", {}),
    "sliding windows": ("cpu", {"model_name_or_path": "windows"}),
    "LoRA": ("cpu", {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear", "learning_rate": 1e-2}),
    "checkpointing": ("cpu", {"gradient_checkpointing": True}),
    "DDP": ("ddp", TWO_PROCESSES),
    "FSDP2": ("fsdp2", TWO_PROCESSES),
    "ZeRO-3": ("zero3", TWO_PROCESSES),
}
"""The file of configs/accelerate and the options of each setting."""


def prepare(output: Path) -> None:
    """Write the models and the pairs of every run; prompts are longer than completions."""
    tokenizer = ByT5Tokenizer(extra_ids=0)
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.role }}: {{ message.content }}</s>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    text: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        # Ten times the default: attention has to matter to the loss.
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    windows = text | {"head_dim": 8, "sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"]}
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    models: dict[str, Callable[[], PreTrainedModel]] = {
        "model": lambda: LlamaForCausalLM(LlamaConfig(**text)),
        "windows": lambda: Gemma3ForConditionalGeneration(
            Gemma3Config(text_config=windows, vision_config=vision | {"image_size": 28, "patch_size": 14})
        ),
    }
    for name, model in models.items():
        set_seed(0)
        model().save_pretrained(output / name)
        tokenizer.save_pretrained(output / name)

    def letters(shortest: int, longest: int) -> str:
        return "".join(random.choices("abcdefgh ", k=random.randint(shortest, longest)))

    rows = [
        {
            "prompt": [{"role": "user", "content": letters(30, 150)}],
            "chosen": [{"role": "assistant", "content": letters(1, 40)}],
            "rejected": [{"role": "assistant", "content": letters(1, 40)}],
            "stage": "init_note",
            "question_id": str(number),
        }
        for number in range(40)
    ]
    Dataset.from_list(rows).to_parquet(str(output / "train.parquet"))


def losses(options: dict[str, Any], shared: bool) -> list[float]:
    """The loss of each step of a run, of this project's trainer with shared prompts or of TRL's own."""
    argv = []
    for key, value in options.items():
        argv += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
    arguments, training, model = config.parse(
        [DPOArguments, DPOConfiguration, ModelConfig], [*argv, "--prefix_sharing", str(shared)]
    )
    base, files = str(model.model_name_or_path), rows.find_splits(arguments.pairs, "--pairs")
    tokenizer = load_tokenizer(base, model.model_revision, {})
    trainer: DPOTrainer
    if shared:
        stops = stop_tokens(base, model.model_revision, tokenizer)
        datasets, _ = pairs.load(files, tokenizer, stops, training, arguments)
        trainer = build(base, tokenizer, datasets, arguments, training, model)
    else:
        training.model_init_kwargs = weights.loading_options(training, model)
        set_seed(training.seed)
        plain = Dataset.from_parquet(str(files["train"]), columns=["prompt", "chosen", "rejected"])
        trainer = DPOTrainer(
            base, args=training, train_dataset=plain, processing_class=tokenizer, peft_config=get_peft_config(model)
        )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def work(asked: list[Combination], steps: int, output: Path) -> None:
    """Run combinations in a process of `accelerate launch`, and store the losses."""
    shared_options = {
        "model_name_or_path": "model",
        "pairs": output,
        "output_dir": output / "run",
        "reference_cache": output / "reference",
        "max_length": 256,
        "max_steps": steps,
        "total_batch_size": 4,
        "per_device_train_batch_size": 4,
        "optim": "adamw_torch",
        # Some processors would train in bfloat16.
        "bf16": False,
        "learning_rate": 1e-3,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
    }
    with jsonl.Journal(output / "losses.jsonl") as journal:
        for name, setting in asked:
            options = shared_options | SETTINGS[setting][1] | LOSSES[name]
            options["model_name_or_path"] = output / str(options["model_name_or_path"])
            expected, shared = losses(options, shared=False), losses(options, shared=True)
            if int(os.environ.get("RANK", "0")) == 0:
                journal.append({"setting": setting, "loss": name, "steps": steps, "trl": expected, "shared": shared})


def launch(accelerate: str, asked: list[Combination], steps: int, output: Path) -> None:
    """Launch `work` as training is launched, with a file of configs/accelerate; its log goes to a file."""
    command = [sys.executable, "-m", "accelerate.commands.launch"]
    command += ["--config_file", str(ROOT / f"configs/accelerate/{accelerate}.yaml"), "--main_process_port", "0"]
    if accelerate != "cpu":
        command += ["--num_processes", "2", "--mixed_precision", "no"]
    if accelerate == "fsdp2":
        command += [str(ROOT / "tests/integration/fsdp_on_cpu.py")]
    command += [__file__, "--work", "--output_dir", str(output), "--steps", str(steps)]
    for option, values in zip(("--losses", "--settings"), zip(*asked, strict=True), strict=True):
        command += [option, *dict.fromkeys(values)]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(output / "cache")}
    log = output / f"{accelerate}.log"
    sys.stdout.write(f"{accelerate}: {len(asked)} combinations; see {log} for progress\n")
    sys.stdout.flush()
    with open(log, "w", encoding="utf-8") as file:
        subprocess.run(command, env=environment, stdout=file, stderr=file, check=True)


def finished(output: Path, steps: int) -> dict[Combination, dict[str, Any]]:
    """The stored records of runs of `steps` steps, by loss and setting."""
    file = output / "losses.jsonl"
    records = (record for _, record in jsonl.read(file)) if file.exists() else ()
    return {(record["loss"], record["setting"]): record for record in records if record["steps"] == steps}


def error(record: dict[str, Any]) -> float:
    """The largest relative difference of a step's loss; a hinge of exactly 0 has to be 0 in both."""
    steps: zip[tuple[float, float]] = zip(record["trl"], record["shared"], strict=True)
    return max(abs(a - b) / max(abs(a), 1e-30) for a, b in steps)


def main() -> None:
    """Run what is not finished, and print all that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES), metavar="LOSS")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--steps", type=int, default=20, help="of each run")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/losses"))
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    output = arguments.output_dir.resolve()
    asked = [(name, setting) for setting in arguments.settings for name in arguments.losses]
    done = finished(output, arguments.steps)
    if arguments.work:
        work([key for key in asked if key not in done], arguments.steps, output)
        return

    if not (output / "train.parquet").exists():
        prepare(output)
    for accelerate in dict.fromkeys(SETTINGS[setting][0] for setting in arguments.settings):
        if missing := [key for key in asked if key not in done and SETTINGS[key[1]][0] == accelerate]:
            launch(accelerate, missing, arguments.steps, output)

    done = finished(output, arguments.steps)
    for setting in arguments.settings:
        largest = max(error(done[name, setting]) for name in arguments.losses)
        sys.stdout.write(f"{setting}: {largest:.0e}\n")
    ranges = [(min(done[key]["trl"]), max(done[key]["trl"]), done[key]["trl"][0]) for key in asked]
    result = {
        "loss_error": max(error(done[key]) for key in asked),
        "combinations": len(asked),
        "least_change": min((high - low) / abs(first) for low, high, first in ranges),
    }
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
