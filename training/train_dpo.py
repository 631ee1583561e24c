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

import difflib
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from trl import DPOConfig, ModelConfig, get_peft_config, get_quantization_config

from notewriter import config
from notewriter.errors import UserError, run
from training import checks, common, contract, pairs, reference
from training.throughput import Metered

TRAINED = ["prompt_ids", "chosen_ids", "rejected_ids", "length"]
"""What the trainer gets: the tokens that were checked, and `length` for `train_sampling_strategy: group_by_length`."""

LOSSES = re.findall(r"`'(\w+)'`", DPOConfig.__dataclass_fields__["loss_type"].metadata["help"])
"""The losses of this TRL, which lists them nowhere else than in a help text."""


NEEDS = {
    "label_smoothing": ("loss_type", {"robust", "exo_pair", "aot", "aot_unpaired"}),
    "discopop_tau": ("loss_type", {"discopop"}),
    "ld_alpha": ("loss_type", {*LOSSES} - {"sft"}),
    "f_divergence_type": ("loss_type", {*LOSSES} - {"sft"}),
    "f_alpha_divergence_coef": ("f_divergence_type", {"alpha_divergence"}),
    "ref_model_mixup_alpha": ("sync_ref_model", {True}),
    "ref_model_sync_steps": ("sync_ref_model", {True}),
    "precompute_ref_batch_size": ("precompute_ref_log_probs", {True}),
}
"""Options that TRL reads only with some values of another option, and otherwise ignores silently."""


@dataclass(kw_only=True)
class Arguments(common.Arguments):
    """What is ours; the rest is TRL's DPOConfig and ModelConfig."""

    pairs: str = field(
        metadata={"help": "A folder with train.parquet and (for evaluation) dev.parquet, or one Parquet file."}
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


@dataclass
class Configuration(common.BatchConfiguration, DPOConfig):
    """TRL's DPOConfig with a batch size that does not depend on the number of processes, and fp32 on the CPU."""

    def __post_init__(self) -> None:
        contract.check_trl()
        super().__post_init__()
        # TRL looks at the losses in the first step, when the reference may have been computed for hours.
        for loss in self.loss_type:
            if LOSSES and loss not in LOSSES:
                near = difflib.get_close_matches(loss, LOSSES, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"choose of: {', '.join(LOSSES)}"
                raise UserError(f"loss_type: TRL has no loss {loss!r}; {remedy}")
        self.check_objective()

    def check_objective(self) -> None:
        """Raise a `UserError` where the loss ignores an option or cannot be computed with it."""
        fields = DPOConfig.__dataclass_fields__
        for option, (other, values) in NEEDS.items():
            chosen = getattr(self, other)
            chosen = chosen if isinstance(chosen, list) else [chosen]
            if getattr(self, option) != fields[option].default and values and values.isdisjoint(chosen):
                need = " or ".join(sorted(str(value).lower() for value in values))
                raise UserError(
                    f"{option}: is ignored with {other} {', '.join(map(str, chosen)).lower()}; leave it out, or set "
                    f"{other} to {need}"
                )
        if "exo_pair" in self.loss_type and not 0 < self.label_smoothing < 1:
            raise UserError(
                f"label_smoothing: exo_pair needs one between 0 and 1, not {self.label_smoothing}; try 0.001"
            )
        if "robust" in self.loss_type and not 0 <= self.label_smoothing < 0.5:
            raise UserError(
                f"label_smoothing: robust needs one from 0 to below 0.5, not {self.label_smoothing}; try 0.1"
            )


class Trainer(Metered, reference.Trainer):
    """The trainer with the throughput in its log."""


def main(argv: list[str]) -> None:
    """One DPO run, or what is left of it; see `common.train`.

    Raises:
        UserError: the model, the pairs or the configuration cannot be trained with, or `output_dir` holds another run.
    """
    arguments, training, model = config.parse(
        [Arguments, Configuration, ModelConfig], argv, prog="notewriter train-dpo", description=__doc__
    )
    if os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING") == "true" and not model.use_peft:
        # TRL shards the reference model without sending it from the first process, which alone has read it.
        raise UserError(
            "fsdp_cpu_ram_efficient_loading leaves the reference model uninitialised; set it to false in the "
            "accelerate configuration (as configs/accelerate/fsdp2.yaml does), or use configs/accelerate/zero3.yaml"
        )
    common.train("dpo", arguments, training, model, option="pairs", load=load, build=build)


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
        measured = pairs.measure(pairs.read(file), tokenizer, stops, file, training.dataset_num_proc)
        datasets[split], dropped[split] = pairs.fit(measured, training.max_length, file, arguments.drop_long_rows)
    checks.prepare({str(files[split]): dataset for split, dataset in datasets.items()}, tokenizer, stops)
    return datasets, dropped


def build(
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    datasets: dict[str, Dataset],
    arguments: Arguments,
    training: Configuration,
    model: ModelConfig,
) -> Trainer:
    """The trainer of a base model on the pairs of `load`."""
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
    trainer.measure(lora=model.use_peft, peak=arguments.peak_tflops, paired=True, shared=arguments.prefix_sharing)
    return trainer


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
