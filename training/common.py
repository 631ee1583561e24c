"""What DPO and SFT training share: the run from its options to its record, which goes on after a stop."""

import contextlib
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
import yaml
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from annotated_types import Interval
from datasets import Dataset
from transformers import (
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from trl import ModelConfig

from notewriter import jsonl
from notewriter.artifacts.fingerprints import BASE, FINGERPRINTS, check_fingerprints
from notewriter.errors import UserError, writing
from notewriter.locks import locked
from notewriter.models.processor import number_format
from training import base_model, chat_templates, checks, pairs

logger = logging.getLogger(__name__)

# What may differ between a run and its continuation: where it logs and what it keeps, not what it computes.
INCIDENTAL = {
    "output_dir",
    "pairs",
    "data",
    "report_to",
    "run_name",
    "project",
    "disable_tqdm",
    "log_level",
    "logging_steps",
    "save_steps",
    "save_total_limit",
    "dataset_num_proc",
    "dataloader_num_workers",
    "precompute_ref_batch_size",
    "reference_cache",
    "resume_from_checkpoint",
    "ddp_timeout",
    "peak_tflops",
}


@dataclass(kw_only=True)
class Arguments:
    """What every training script takes beside TRL's options."""

    chat_template_kwargs: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "Variables of the model's chat template, as {enable_thinking: false} for models that think by "
            'default, or {date_string: "26 Jul 2024"}. The trained model\'s template has them as defaults; give them '
            "to the commands that ask the base model too."
        },
    )
    drop_long_rows: bool = field(
        default=False,
        metadata={"help": "Train without the rows that max_length would cut, instead of refusing to start."},
    )
    peak_tflops: Annotated[float, Interval(gt=0)] | None = field(
        default=None,
        metadata={"help": "The peak of a GPU in bfloat16, for MFU in the log; known by itself for common GPUs."},
    )


@dataclass
class BatchConfiguration:
    """For a TRL configuration: a batch size that does not depend on the number of processes, and a number format.

    Told nothing else, forward and backward run in bfloat16 on a CUDA device and on a CPU that has units for it.
    """

    total_batch_size: int | None = field(
        default=None,
        metadata={
            "help": "Rows of one optimizer step over all processes; gradient_accumulation_steps follows from it, so "
            "that one configuration means the same training on one GPU and on eight."
        },
    )

    def __post_init__(self) -> None:
        deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true"
        if self.bf16 is None and not self.fp16:
            self.bf16 = computes_in_bfloat16(self.use_cpu, deepspeed)
        if deepspeed and os.environ.get("LOCAL_RANK", "0") == "0":
            tell_of_locks()
        if not torch.accelerator.is_available():
            # Told neither, accelerate starts several processes on the CPU that know nothing of each other.
            if deepspeed:
                self.ddp_backend = "gloo"
            else:
                self.use_cpu = True
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if self.total_batch_size is not None:
            forward = processes * self.per_device_train_batch_size
            if self.total_batch_size % forward:
                raise UserError(
                    f"total_batch_size {self.total_batch_size} is not a multiple of {processes} process(es) x "
                    f"per_device_train_batch_size {self.per_device_train_batch_size}; change one of them"
                )
            self.gradient_accumulation_steps = self.total_batch_size // forward
        super().__post_init__()
        if self.trust_remote_code or (self.model_init_kwargs or {}).get("trust_remote_code"):
            raise UserError("trust_remote_code: code that comes with a model is never run; leave it out")
        if self.world_size != processes:
            raise UserError(
                f"{processes} processes were started but do not train together; start them with accelerate launch "
                "and a file of configs/accelerate"
            )


def computes_in_bfloat16(use_cpu: bool, deepspeed: bool) -> bool:
    """Whether forward and backward run in bfloat16 where the user does not say."""
    if not use_cpu and torch.accelerator.is_available():
        return torch.cuda.is_available()
    # With DeepSpeed transformers takes bfloat16 to mean a GPU's, and refuses.
    return number_format() == "bfloat16" and not deepspeed


def tell_of_locks() -> None:
    """Warn of locks on PyTorch's compiled extensions: DeepSpeed waits for them without a word, without an end.

    A process that was killed while it compiled leaves one behind.
    """
    # A quarter of a second, which only DeepSpeed needs.
    from torch.utils.cpp_extension import get_default_build_root

    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    for lock in sorted({*folder.glob("*/lock"), *folder.glob("*/*/lock")}):
        logger.warning(
            "%s: this run waits until it is gone; another process compiles there, or was killed while it did: "
            "if none does, remove this file",
            lock,
        )


def train(
    method: str,
    arguments: Any,
    training: Any,
    model: ModelConfig,
    *,
    option: str,
    load: Callable[..., tuple[dict[str, Dataset], dict[str, int]]],
    build: Callable[..., Any],
    mix: dict[str, float] | None = None,
) -> None:
    """One run of a method, or what is left of it: writes the model, its tokenizer, `config.yaml` and `training.json`.

    Args:
        option: which of `arguments` names the data.
        load: `load(arguments, training, tokenizer, stops, files)`, the tokens of each split and how many rows were
            dropped as too long.
        build: `build(base, tokenizer, datasets, arguments, training, model)`, the trainer.
        mix: other data that `load` mixes in, file -> rows of it for each row of data.

    Raises:
        UserError: the model, the data or the configuration cannot be trained with, or `output_dir` holds another run.
    """
    base = base_model.check_base(training, model)
    source = getattr(arguments, option)
    files = pairs.find(source, f"--{option}")
    if training.eval_strategy != "no" and "dev" not in files:
        raise UserError(f"{source}: has no dev.parquet to evaluate on; add it, or give --eval_strategy no")
    mixed = [pairs.find(path, "mix")["train"] for path in mix or {}]
    tokenizer, dtype = base_model.load_base(base, model.model_revision)
    chat_templates.set_variables(tokenizer, arguments.chat_template_kwargs)
    resolved = resolve(arguments, model, training)
    data = {option: pairs.sha256([*files.values(), *mixed])}
    check_output(Path(training.output_dir), resolved, data)
    contents = check_contents(Path(training.output_dir), resolved)
    if is_finished(Path(training.output_dir)):
        return

    stops = base_model.stop_tokens(base, model.model_revision, tokenizer)
    with training.main_process_first(local=False, desc=f"reading {option}"), writing(pairs.cache()):
        datasets, dropped = load(arguments, training, tokenizer, stops, files)
    rows = {split: pairs.stages(dataset) for split, dataset in datasets.items()}
    for split, stages in rows.items():
        logger.info(
            "%s: %d rows (%s); %d dropped as longer than %s tokens",
            files[split],
            len(datasets[split]),
            ", ".join(f"{stage} {count}" for stage, count in stages.items()),
            dropped[split],
            training.max_length,
        )
    if training.process_index == 0:
        # Not a message of the log, whose control characters are written out: it has colours, and is harmless already.
        sys.stderr.write(checks.overview(datasets["train"], tokenizer, sys.stderr.isatty()) + "\n")

    training.model_init_kwargs = base_model.model_options(training, model)
    # Before a LoRA adapter is drawn, so that every process draws the same one.
    set_seed(training.seed)
    with writing(pairs.cache()):
        trainer = build(base, tokenizer, datasets, arguments, training, model)
    metrics = run_to_end(trainer, resolved, data, contents, dtype)
    variables = arguments.chat_template_kwargs
    record = {
        "method": method,
        "base_model": base,
        "base_model_fingerprint": contents.get(f"{BASE}: {base}"),
        "parameters": "lora" if model.use_peft else "full",
        option: source,
        f"{option}_sha256": data[option],
        "rows": rows,
        "dropped_long_rows": dropped,
        "hyperparameters": hyperparameters(training, model)
        | ({"chat_template_kwargs": variables} if variables else {}),
        "metrics": metrics,
    }
    finish(trainer, record | ({"mix": mix} if mix else {}))
    trainer.end()


def run_to_end(
    trainer: Trainer,
    resolved: dict[str, Any],
    data: dict[str, str],
    contents: dict[str, str],
    dtype: torch.dtype | None,
) -> dict[str, float]:
    """Train, from the last checkpoint where there is one, and save the whole model; returns the metrics.

    `data` is the name of the option that names the data, and the data's hash; `contents` are the fingerprints of
    `check_contents`; `dtype` is what the base model's weights are stored in, and those of a fully trained model will
    be.

    Raises:
        UserError: another run works in the output folder, or it cannot be written.
    """
    arguments = trainer.args
    output = Path(arguments.output_dir)
    # Of two runs into one folder each would write over the other's checkpoints.
    lock = locked(output) if arguments.process_index == 0 else contextlib.nullcontext()
    with lock, writing(output):
        trainer.add_callback(TellTracker(resolved, data, contents))
        if trainer.is_world_process_zero():
            jsonl.write_text(output / "config.yaml", [yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True)])
            for name, digest in data.items():
                jsonl.write_text(output / f"{name}.sha256", [digest + "\n"])
            jsonl.write_text(output / FINGERPRINTS, [json.dumps(contents, indent=2) + "\n"])
        checkpoint = last_checkpoint(output)
        if checkpoint:
            logger.info("%s: going on from this checkpoint", checkpoint)
        metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
        if arguments.eval_strategy != "no":
            trainer.evaluate()
        trainer.save_model(str(output))
        if trainer.is_world_process_zero():
            # A pickle of every option, tokens included, that nothing needs.
            (output / "training_args.bin").unlink(missing_ok=True)
            if not resolved["use_peft"]:
                base_model.cast_weights(output, dtype)
        return last_values(trainer.state.log_history) | metrics


def last_checkpoint(output: Path) -> str | None:
    """The newest checkpoint in a folder that is whole: what a killed run left in the middle of writing is passed over.

    The trainer writes `trainer_state.json` last.
    """
    found = [path.parent for path in output.glob("checkpoint-*/trainer_state.json")]
    newest = max(found, key=lambda path: int(path.name.removeprefix("checkpoint-")), default=None)
    return str(newest) if newest else None


class TellTracker(TrainerCallback):
    """Give Weights & Biases what makes a run traceable: its resolved options, hashes, its data's statistics."""

    def __init__(self, resolved: dict[str, Any], data: dict[str, str], contents: dict[str, str]) -> None:
        self.facts = resolved | {f"{name}_sha256": digest for name, digest in data.items()} | {"fingerprints": contents}
        for name in data:
            folder = Path(resolved[name])
            stats = (folder if folder.is_dir() else folder.parent) / "stats.json"
            if stats.is_file():
                self.facts[f"{name}_stats"] = json.loads(stats.read_text(encoding="utf-8"))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the tracker's own callback, which has begun its run."""
        if "wandb" in args.report_to and state.is_world_process_zero:
            import wandb

            wandb.config.update(self.facts, allow_val_change=True)


def finish(trainer: Trainer, record: dict[str, Any]) -> None:
    """Write `training.json`, which marks a run as finished; `record` is what the method says of itself."""
    output = Path(trainer.args.output_dir)
    if trainer.is_world_process_zero():
        record = {
            "schema": "notewriter/training/1",
            **record,
            "steps": trainer.state.global_step,
            "versions": {name: version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")},
        }
        jsonl.write_text(output / "training.json", [json.dumps(record, indent=2, ensure_ascii=False) + "\n"])
        logger.info("%s: trained in %d steps; the model is here", output, trainer.state.global_step)


def resolve(*arguments: Any) -> dict[str, Any]:
    """Every option with its value, ready to be a `--config` file again; tokens and passwords are left out."""
    options: dict[str, Any] = {}
    for part in arguments:
        options |= part.to_dict() if isinstance(part, TrainingArguments) else dataclasses.asdict(part)
    return {key: value for key, value in options.items() if value is not None and not key.endswith("_token")}


def check_output(output: Path, resolved: dict[str, Any], data: dict[str, str]) -> None:
    """Raise a `UserError` where `output` holds a run of another configuration or of other data."""
    if not (output / "config.yaml").exists():
        return
    earlier = yaml.safe_load((output / "config.yaml").read_text(encoding="utf-8"))
    incidental = INCIDENTAL
    if "total_batch_size" in resolved:
        # The same batch, on another number of processes.
        incidental = incidental | {"per_device_train_batch_size", "gradient_accumulation_steps"}
    differing = sorted(
        key for key in (earlier.keys() | resolved.keys()) - incidental if earlier.get(key) != resolved.get(key)
    )
    for name, digest in data.items():
        hashed = output / f"{name}.sha256"
        if not hashed.exists() or hashed.read_text(encoding="utf-8").strip() != digest:
            differing.append(f"the content of {name}")
    if differing:
        raise UserError(
            f"{output}: holds a run that differs in {', '.join(differing)}; "
            "give another --output_dir, or remove this folder"
        )


def check_contents(output: Path, resolved: dict[str, Any]) -> dict[str, str]:
    """The fingerprints of what the options name, the base model, which are those of the run that `output` holds.

    The first process alone reads the weights; all get its result, or its error.

    Raises:
        UserError: the base model has changed since the run began.
    """
    found: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            found[0] = check_fingerprints(output, resolved)
        except UserError as error:
            found[1] = error
    contents, error = broadcast_object_list(found)
    if error is not None:
        raise error
    return contents


def is_finished(output: Path) -> bool:
    """Whether `output` holds a finished run, which is left as it is."""
    finished = (output / "training.json").exists()
    if finished:
        logger.info("%s: this run is finished; remove the folder to train again", output)
    return finished


def hyperparameters(training: Any, model: ModelConfig) -> dict[str, Any]:
    """What a paper's table of hyper-parameters would list."""
    names = [
        "loss_type",
        "loss_weights",
        "beta",
        "packing",
        "learning_rate",
        "lr_scheduler_type",
        "warmup_steps",
        "optim",
    ]
    names += ["weight_decay", "max_grad_norm", "num_train_epochs", "max_steps", "max_length", "seed", "bf16"]
    values = {name: value for name, value in training.to_dict().items() if name in names}
    values["batch_size"] = (
        training.per_device_train_batch_size * training.gradient_accumulation_steps * training.world_size
    )
    values["processes"] = training.world_size
    if model.use_peft:
        values |= {key: value for key, value in dataclasses.asdict(model).items() if key.startswith("lora_")}
    return values


def last_values(history: list[dict[str, float]]) -> dict[str, float]:
    """The last logged value of each metric."""
    values: dict[str, float] = {}
    for entry in history:
        values |= entry
    return values
