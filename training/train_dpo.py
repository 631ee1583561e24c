"""Direct Preference Optimization (Rafailov et al. 2023, https://arxiv.org/abs/2305.18290) on preference pairs.

All parameters, eight GPUs:

    accelerate launch --quiet --config_file configs/accelerate/zero3.yaml training/train_dpo.py \
        --config configs/dpo/deepnote_qwen2.5-7b.yaml --pairs data/pairs

LoRA, one GPU:

    accelerate launch --quiet --config_file configs/accelerate/single.yaml training/train_dpo.py \
        --config configs/dpo/deepnote_qwen2.5-7b_lora.yaml --pairs data/pairs

Every key of the YAML is also an option, which wins: `--learning_rate 1e-6 --max_length 4096`. A run that was stopped
goes on from its last checkpoint when the same command is given again; a run that is finished says so.
"""

import logging
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, set_seed
from trl import DPOConfig, ModelConfig, get_peft_config, get_quantization_config

from notewriter import config
from notewriter.errors import UserError, run
from training import checks, common, pairs, reference
from training.throughput import Metered

logger = logging.getLogger(__name__)

TRAINED = ["prompt", "chosen", "rejected", "length"]
"""What the trainer gets; `length` is for `train_sampling_strategy: group_by_length`."""


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
            "faster where prompts are long, and less memory. What cannot be shared is refused."
        },
    )
    reference_cache: str = field(
        default="~/.cache/notewriter/reference",
        metadata={
            "help": "With precompute_ref_log_probs: the folder where the reference's log-probs are kept, for every run "
            "that starts from the same weights, whatever else it is told."
        },
    )
    peak_tflops: float | None = field(
        default=None,
        metadata={"help": "The peak of a GPU in bfloat16, for MFU in the log; known by itself for common GPUs."},
    )


@dataclass
class Configuration(common.BatchConfiguration, DPOConfig):
    """TRL's DPOConfig with a batch size that does not depend on the number of processes, and fp32 on the CPU."""


class Trainer(Metered, reference.Trainer):
    """The trainer with the throughput in its log."""


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
    base = common.check_base(training, model)
    output = Path(training.output_dir)
    if os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING") == "true" and not model.use_peft:
        # TRL shards the reference model without sending it from the first process, which alone has read it.
        raise UserError(
            "fsdp_cpu_ram_efficient_loading leaves the reference model uninitialised; set it to false in the "
            "accelerate configuration (as configs/accelerate/fsdp2.yaml does), or use configs/accelerate/zero3.yaml"
        )
    files = pairs.find(arguments.pairs)
    if training.eval_strategy != "no" and "dev" not in files:
        raise UserError(f"{arguments.pairs}: has no dev.parquet to evaluate on; add it, or give --eval_strategy no")
    tokenizer, base_dtype = common.load_base(base, model.model_revision)
    resolved = common.resolve(arguments, model, training)
    data = {"pairs": pairs.sha256(list(files.values()))}
    common.check_output(output, resolved, data)
    if common.is_finished(output):
        return

    stops = common.stop_tokens(base, model.model_revision, tokenizer)
    with training.main_process_first(local=False, desc="reading pairs"):
        datasets, dropped = load(arguments, training, tokenizer, stops, files)
    for split, dataset in datasets.items():
        logger.info(
            "%s: %d pairs (%s); %d dropped as longer than %s tokens",
            files[split],
            len(dataset),
            ", ".join(f"{stage} {count}" for stage, count in pairs.stages(dataset).items()),
            dropped[split],
            training.max_length,
        )

    if training.process_index == 0:
        logger.info("%s", checks.overview(datasets["train"], tokenizer, sys.stderr.isatty()))

    training.model_init_kwargs = common.model_options(training, model)
    # Before a LoRA adapter is drawn, so that every process draws the same one.
    set_seed(training.seed)
    trainer = Trainer(
        base,
        prefix_sharing=arguments.prefix_sharing,
        reference_cache=Path(arguments.reference_cache).expanduser(),
        args=training,
        train_dataset=datasets["train"].select_columns(TRAINED),
        eval_dataset=datasets["dev"].select_columns(TRAINED) if training.eval_strategy != "no" else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(model),
        quantization_config=get_quantization_config(model),
    )
    trainer.measure(lora=model.use_peft, peak=arguments.peak_tflops, paired=True)
    metrics = common.run_to_end(trainer, resolved, data, base_dtype)
    common.finish(
        trainer,
        {
            "method": "dpo",
            "base_model": base,
            "parameters": "lora" if model.use_peft else "full",
            "pairs": arguments.pairs,
            "pairs_sha256": data["pairs"],
            "rows": {split: pairs.stages(dataset) for split, dataset in datasets.items()},
            "dropped_long_rows": dropped,
            "hyperparameters": common.hyperparameters(training, model),
            "metrics": metrics,
        },
    )
    trainer.end()


def load(
    arguments: Arguments,
    training: Configuration,
    tokenizer: PreTrainedTokenizerBase,
    stops: frozenset[int],
    files: dict[str, Path],
) -> tuple[dict[str, Dataset], dict[str, int]]:
    """The pairs of each split with their tokens, and how many were dropped as too long.

    Raises:
        UserError: a row is no pair, is too long, or would be trained wrongly.
    """
    datasets: dict[str, Dataset] = {}
    dropped: dict[str, int] = {}
    for split, file in files.items():
        measured = pairs.measure(pairs.read(file), tokenizer, file, training.dataset_num_proc)
        datasets[split], dropped[split] = pairs.fit(measured, training.max_length, file, arguments.drop_long_rows)
    checks.prepare(datasets, tokenizer, stops, arguments.pairs)
    return datasets, dropped


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
