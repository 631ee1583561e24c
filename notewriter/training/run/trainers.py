"""The trainers of DPO, KTO and SFT: TRL's, with the throughput in their log."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, set_seed
from trl import KTOTrainer, ModelConfig, SFTTrainer, get_peft_config, get_quantization_config
from trl.kernels.chunked_logprob import _use_triton
from trl.trainer import utils

from notewriter.ground.errors import UserError, writing
from notewriter.training.contract import check_methods
from notewriter.training.inputs import rows
from notewriter.training.inputs.pairs import unpaired
from notewriter.training.model import adapters, generation, weights
from notewriter.training.options import (
    Configuration,
    DPOArguments,
    DPOConfiguration,
    KTOConfiguration,
    PairArguments,
    SFTArguments,
    SFTConfiguration,
    format_of,
)
from notewriter.training.run.divergence import StopsWhenDiverged
from notewriter.training.run.reference_free import ReferenceFreeTrainer
from notewriter.training.run.resumption import on_main_process
from notewriter.training.run.step_counts import CountsSteps
from notewriter.training.run.throughput import Metered
from notewriter.training.sharing.reference import TakesTokens

PAIR_COLUMNS = ["prompt_ids", "chosen_ids", "rejected_ids", "length"]
"""Of pairs: the checked tokens, and `length` for `train_sampling_strategy: group_by_length`."""

SIDE_COLUMNS = ["prompt_ids", "completion_ids", "label", "length"]
"""Of the sides of pairs, for KTO, whose own loss needs `KL_completion_ids` too."""

CONVERSATION_COLUMNS = ["input_ids", "labels", "length"]


def scores_labels_alone(device: torch.device) -> bool:
    """Whether TRL's fused head is to leave positions without a label out, which are most of a prompt's.

    TRL 1.16 does so only where it has kernels: elsewhere a device may compile anew for every number of positions, but a
    CPU does not.
    """
    return device.type == "cpu" or _use_triton(device)


class EndsAtMaxSteps:
    """A mixin for a trainer: resumed from the checkpoint of its last step, it trains no further.

    transformers 5.19 takes one more step if the last one was not the end of an epoch.
    """

    def _run_epoch(self, *arguments: Any, **state: Any) -> None:
        if self.state.global_step >= self.state.max_steps:  # type: ignore[attr-defined]
            self.control.should_training_stop = True  # type: ignore[attr-defined]
            return
        super()._run_epoch(*arguments, **state)  # type: ignore[misc]


class MeteredDPOTrainer(EndsAtMaxSteps, StopsWhenDiverged, Metered, ReferenceFreeTrainer):
    """The DPO trainer with the throughput in its log."""


class MeteredKTOTrainer(EndsAtMaxSteps, StopsWhenDiverged, Metered, CountsSteps, TakesTokens, KTOTrainer):
    """TRL's KTOTrainer with the throughput in its log, on tokens that were checked."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        """TRL's loss of a forward, which on dev may come with outputs, as its share of a step."""
        loss = super().compute_loss(model, inputs, *arguments, **options)  # type: ignore[no-untyped-call]
        return loss if isinstance(loss, tuple) else loss * self.shares(inputs)[0]


class MeteredSFTTrainer(EndsAtMaxSteps, StopsWhenDiverged, Metered, SFTTrainer):
    """TRL's SFTTrainer with the throughput in its log."""


def build_dpo_trainer(
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    datasets: Mapping[str, Dataset],
    arguments: DPOArguments,
    training: DPOConfiguration,
    model: ModelConfig,
) -> MeteredDPOTrainer:
    """The trainer of a base model on the pairs of `pairs.load`; loads the model.

    Raises:
        UserError: the model cannot be loaded or trained with these options.
    """
    trainer: MeteredDPOTrainer = _build(
        *(MeteredDPOTrainer, base, tokenizer, datasets, PAIR_COLUMNS, training, model),
        prefix_sharing=arguments.prefix_sharing,
        reference_cache=Path(arguments.reference_cache).expanduser(),
    )
    trainer.measure(lora=model.use_peft, peak=arguments.peak_tflops, paired=True, shared=arguments.prefix_sharing)
    return trainer


def build_kto_trainer(
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    datasets: Mapping[str, Dataset],
    arguments: PairArguments,
    training: KTOConfiguration,
    model: ModelConfig,
) -> MeteredKTOTrainer:
    """The trainer of a base model on the sides of the pairs of `pairs.load`; loads the model.

    Raises:
        UserError: the model cannot be loaded or trained with these options.
    """
    batch = training.per_device_train_batch_size
    sides = {split: unpaired(dataset, batch, training.seed) for split, dataset in datasets.items()}
    columns = [*SIDE_COLUMNS, "KL_completion_ids"] if training.loss_type == "kto" else SIDE_COLUMNS
    trainer: MeteredKTOTrainer = _build(MeteredKTOTrainer, base, tokenizer, sides, columns, training, model)
    trainer.measure(lora=model.use_peft, peak=arguments.peak_tflops, paired=False)
    return trainer


def build_sft_trainer(
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    datasets: Mapping[str, Dataset],
    arguments: SFTArguments,
    training: SFTConfiguration,
    model: ModelConfig,
) -> MeteredSFTTrainer:
    """The trainer of a base model on the conversations of `conversations.load`; loads the model.

    Raises:
        UserError: the model cannot be loaded or trained with these options.
    """
    trainer: MeteredSFTTrainer = _build(
        MeteredSFTTrainer, base, tokenizer, datasets, CONVERSATION_COLUMNS, training, model
    )
    trainer.measure(lora=model.use_peft, peak=arguments.peak_tflops, paired=False)
    return trainer


def _build(
    kind: Any,
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    datasets: Mapping[str, Dataset],
    columns: list[str],
    training: Configuration,
    model: ModelConfig,
    **options: Any,
) -> Any:
    """A trainer of TRL, of these columns of the splits."""
    check_methods(kind)
    utils._use_triton = scores_labels_alone
    training.model_init_kwargs = weights.loading_options(training, model)
    on_main_process(lambda: weights.check_whole(base, model.model_revision, training))
    # Before a LoRA adapter is drawn, so that every process draws the same one.
    set_seed(training.seed)
    with writing(rows.cache()), adapters.adapting():
        trainer = kind(
            base,
            args=training,
            train_dataset=datasets["train"].select_columns(columns),
            eval_dataset=datasets["dev"].select_columns(columns) if training.eval_strategy != "no" else None,
            processing_class=tokenizer,
            peft_config=get_peft_config(model),
            quantization_config=get_quantization_config(model),
            **options,
        )
    if trainer.accelerator.mixed_precision != format_of(training):
        raise UserError(
            f"mixed_precision: would be {trainer.accelerator.mixed_precision}, and the options say "
            f"{format_of(training)}; make --bf16 and --fp16 agree with the file that accelerate launches with"
        )
    # Also of an adapter's base, which PEFT's model hands on.
    generation.make_savable(trainer.model.generation_config, base)
    return trainer
