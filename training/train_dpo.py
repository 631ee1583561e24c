"""Direct Preference Optimization (Rafailov et al. 2023, https://arxiv.org/abs/2305.18290) on preference pairs.

All parameters, eight GPUs:

    accelerate launch --config_file configs/accelerate/zero3.yaml training/train_dpo.py \
        --config configs/dpo/deepnote_qwen2.5-7b.yaml --pairs data/pairs

LoRA, one GPU:

    accelerate launch --config_file configs/accelerate/single.yaml training/train_dpo.py \
        --config configs/dpo/deepnote_qwen2.5-7b_lora.yaml --pairs data/pairs

Every key of the YAML is also an option, which wins: `--learning_rate 1e-6 --max_length 4096`. A run that was stopped
goes on from its last checkpoint when the same command is given again; a run that is finished says so.
"""

import dataclasses
import json
import logging
import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from datasets import Dataset
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer, ModelConfig, get_peft_config, get_quantization_config

from notewriter import config, jsonl, models
from notewriter.errors import UserError, run
from training import pairs
from training.prefix_sharing import share_prefixes

logger = logging.getLogger(__name__)

# What may differ between a run and its continuation: where it logs and what it keeps, not what it computes.
INCIDENTAL = {
    "output_dir",
    "pairs",
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
    "resume_from_checkpoint",
    "ddp_timeout",
}


@dataclass
class Arguments:
    """What is ours; the rest is TRL's DPOConfig and ModelConfig."""

    pairs: str = field(
        metadata={"help": "A folder with train.parquet and (for evaluation) dev.parquet, or one Parquet file."}
    )
    drop_long_rows: bool = field(
        default=False,
        metadata={"help": "Train without the rows that max_length would cut, instead of refusing to start."},
    )
    prefix_sharing: bool = field(
        default=False,
        metadata={
            "help": "Compute the prompt of a pair once, not once for chosen and once for rejected: the same loss, "
            "faster where prompts are long. Tried on the CPU in one process, full and LoRA."
        },
    )


@dataclass
class Configuration(DPOConfig):
    """TRL's DPOConfig with a batch size that does not depend on the number of processes, and fp32 on the CPU."""

    total_batch_size: int | None = field(
        default=None,
        metadata={
            "help": "Pairs of one optimizer step over all processes; gradient_accumulation_steps follows from it, so "
            "that one configuration means the same training on one GPU and on eight."
        },
    )

    def __post_init__(self) -> None:
        if self.trust_remote_code:
            raise UserError("trust_remote_code: code that comes with a model is never run; leave it out")
        if self.bf16 is None and not self.fp16:
            self.bf16 = torch.cuda.is_available()
        if not torch.accelerator.is_available():
            # Told neither, accelerate starts several processes on the CPU that know nothing of each other.
            if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
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
        if self.world_size != processes:
            raise UserError(
                f"{processes} processes were started but do not train together; start them with accelerate launch "
                "and a file of configs/accelerate"
            )


def main(argv: list[str]) -> None:
    """Train; writes the model, its tokenizer, `config.yaml` and `training.json` into `output_dir`."""
    arguments, training, model = config.parse(
        [Arguments, Configuration, ModelConfig], argv, prog="notewriter train-dpo", description=__doc__
    )
    train(arguments, training, model)


def train(arguments: Arguments, training: Configuration, model: ModelConfig) -> None:
    """One DPO run, or what is left of it.

    Raises:
        UserError: the model, the pairs or the configuration cannot be trained with, or `output_dir` holds another run.
    """
    if training.process_index != 0:
        logging.getLogger().setLevel(logging.WARNING)
    if model.model_name_or_path is None:
        raise UserError("--model_name_or_path is missing; give a model's folder or its name on the Hugging Face Hub")
    base = models.check_model(model.model_name_or_path)
    output = Path(training.output_dir)
    if output.resolve() == Path(base).resolve():
        raise UserError(f"{output}: is the base model; give another --output_dir")
    if os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING") == "true" and not model.use_peft:
        # TRL shards the reference model without sending it from the first process, which alone has read it.
        raise UserError(
            "fsdp_cpu_ram_efficient_loading leaves the reference model uninitialised; set it to false in the "
            "accelerate configuration (as configs/accelerate/fsdp2.yaml does), or use configs/accelerate/zero3.yaml"
        )
    files = pairs.find(arguments.pairs)
    if training.eval_strategy != "no" and "dev" not in files:
        raise UserError(f"{arguments.pairs}: has no dev.parquet to evaluate on; add it, or give --eval_strategy no")
    tokenizer, base_dtype = load_base(base, model.model_revision)
    resolved = resolve(arguments, training, model)
    digest = pairs.sha256(list(files.values()))
    check_output(output, resolved, digest)
    if (output / "training.json").exists():
        logger.info("%s: this run is finished; remove the folder to train again", output)
        return

    with training.main_process_first(local=False, desc="reading pairs"):
        datasets: dict[str, Dataset] = {}
        dropped: dict[str, int] = {}
        for split, file in files.items():
            measured = pairs.measure(pairs.read(file), tokenizer, file, training.dataset_num_proc)
            datasets[split], dropped[split] = pairs.fit(measured, training.max_length, file, arguments.drop_long_rows)
    for split, dataset in datasets.items():
        logger.info(
            "%s: %d pairs (%s); %d dropped as longer than %s tokens",
            files[split],
            len(dataset),
            ", ".join(f"{stage} {count}" for stage, count in pairs.stages(dataset).items()),
            dropped[split],
            training.max_length,
        )

    training.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(training.model_init_kwargs or {}),
    }
    # Before a LoRA adapter is drawn, so that every process draws the same one.
    set_seed(training.seed)
    trainer = DPOTrainer(
        model=base,
        args=training,
        # `stage` and `question_id` have done their work; `length` is for `train_sampling_strategy: group_by_length`.
        train_dataset=datasets["train"].remove_columns(["stage", "question_id"]),
        eval_dataset=datasets["dev"].remove_columns(["stage", "question_id"])
        if training.eval_strategy != "no"
        else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(model),
        quantization_config=get_quantization_config(model),
    )
    if arguments.prefix_sharing:
        for scored in filter(None, (trainer.model, trainer.ref_model)):
            unwrapped = trainer.accelerator.unwrap_model(scored)
            share_prefixes(unwrapped.get_base_model() if isinstance(unwrapped, PeftModel) else unwrapped)
    if trainer.is_world_process_zero():
        jsonl.write_text(output / "config.yaml", [yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True)])
        jsonl.write_text(output / "pairs.sha256", [digest + "\n"])

    checkpoint = get_last_checkpoint(str(output))
    if checkpoint:
        logger.info("%s: going on from this checkpoint", checkpoint)
    metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    if training.eval_strategy != "no":
        trainer.evaluate()
    trainer.save_model(str(output))

    if trainer.is_world_process_zero():
        # A pickle of every option, tokens included, that nothing needs.
        (output / "training_args.bin").unlink(missing_ok=True)
        if not model.use_peft:
            cast_weights(output, base_dtype)
        record = {
            "schema": "notewriter/training/1",
            "method": "dpo",
            "base_model": base,
            "parameters": "lora" if model.use_peft else "full",
            "pairs": arguments.pairs,
            "pairs_sha256": digest,
            "rows": {split: pairs.stages(dataset) for split, dataset in datasets.items()},
            "dropped_long_rows": dropped,
            "hyperparameters": hyperparameters(training, model),
            "steps": trainer.state.global_step,
            "metrics": last_values(trainer.state.log_history) | metrics,
            "versions": {name: version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")},
        }
        jsonl.write_text(output / "training.json", [json.dumps(record, indent=2, ensure_ascii=False) + "\n"])
        logger.info("%s: trained in %d steps; the model is here", output, trainer.state.global_step)
    trainer.end()


def load_base(name: str, revision: str) -> tuple[PreTrainedTokenizerBase, torch.dtype | None]:
    """The tokenizer of a model, which has to have a chat template, and the type that its weights are stored in.

    Raises:
        UserError: there is no model of this name, or it has no chat template.
    """
    try:
        dtype = AutoConfig.from_pretrained(name, revision=revision).dtype
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
    except (OSError, ValueError) as error:
        raise UserError(f"{name}: cannot be loaded as a model: {' '.join(str(error).split())}") from error
    if tokenizer.chat_template is None:
        raise UserError(
            f"{name}: its tokenizer has no chat template; use an instruction-tuned model, or add chat_template.jinja"
        )
    return tokenizer, dtype


def cast_weights(folder: Path, dtype: torch.dtype | None) -> None:
    """Store a saved model's weights in `dtype`, that of its base model; None leaves them as they are.

    Training keeps float32 weights, which a server would load at twice the size, or as float16, which overflows in
    models that were trained in bfloat16.
    """
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if dtype is None or settings["dtype"] == str(dtype).removeprefix("torch."):
        return
    for file in folder.glob("model*.safetensors"):
        weights = load_file(file)
        cast = {key: value.to(dtype) if value.is_floating_point() else value for key, value in weights.items()}
        # The tensors are views of the file that they were read from.
        partial = file.with_name(file.name + ".partial")
        save_file(cast, partial, metadata={"format": "pt"})
        os.replace(partial, file)
    settings["dtype"] = str(dtype).removeprefix("torch.")
    jsonl.write_text(folder / "config.json", [json.dumps(settings, indent=2) + "\n"])


def resolve(arguments: Arguments, training: Configuration, model: ModelConfig) -> dict[str, Any]:
    """Every option with its value, ready to be a `--config` file again; tokens and passwords are left out."""
    options = dataclasses.asdict(arguments) | dataclasses.asdict(model) | training.to_dict()
    return {key: value for key, value in options.items() if value is not None and not key.endswith("_token")}


def check_output(output: Path, resolved: dict[str, Any], digest: str) -> None:
    """Raise a `UserError` where `output` holds a run of another configuration or of other pairs."""
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
    if (output / "pairs.sha256").read_text(encoding="utf-8").strip() != digest:
        differing.append("the content of pairs")
    if differing:
        raise UserError(
            f"{output}: holds a run that differs in {', '.join(differing)}; "
            "give another --output_dir, or remove this folder"
        )


def hyperparameters(training: Configuration, model: ModelConfig) -> dict[str, Any]:
    """What a paper's table of hyper-parameters would list."""
    names = ["loss_type", "loss_weights", "beta", "learning_rate", "lr_scheduler_type", "warmup_steps", "optim"]
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


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
