"""The trainers of DPO, KTO and SFT: TRL's, with the throughput in their log."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, set_seed
from trl import KTOTrainer, ModelConfig, SFTTrainer, get_quantization_config

from notewriter.ground.errors import UserError, writing
from notewriter.training.cost import cost_model
from notewriter.training.inputs import rows
from notewriter.training.inputs.pairs import unpaired
from notewriter.training.model import adapters, generation, trl_functions, weights
from notewriter.training.options import (
    Configuration,
    DPOArguments,
    DPOConfiguration,
    KTOConfiguration,
    SFTConfiguration,
    SharedArguments,
    check_apart,
    format_of,
    recomputes_by_need,
)
from notewriter.training.overrides import check_methods
from notewriter.training.run.dpo_trainer import MeteredDPOTrainer
from notewriter.training.run.recomputation import bare, need_of
from notewriter.training.run.resumption import on_main_process
from notewriter.training.run.steps import OnPairs, Steps
from notewriter.training.run.throughput import Meter

PAIR_COLUMNS = ["prompt_ids", "chosen_ids", "rejected_ids", "length"]
"""The columns of pairs: the checked tokens, and `length` for `train_sampling_strategy: group_by_length`."""

SIDE_COLUMNS = ["prompt_ids", "completion_ids", "label", "length"]
"""The columns of KTO's rows, the sides of pairs; its own loss needs `KL_completion_ids` too."""

CONVERSATION_COLUMNS = ["input_ids", "labels", "length"]


class MeteredKTOTrainer(OnPairs, KTOTrainer):
    """TRL's KTOTrainer with the throughput in its log, on tokens that were checked."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        """TRL's loss of a forward, which on dev may come with outputs, as its share of a step."""
        loss = super().compute_loss(model, inputs, *arguments, **options)  # type: ignore[no-untyped-call]
        return loss if isinstance(loss, tuple) else loss * self.shares(inputs)[0]


class MeteredSFTTrainer(Steps, SFTTrainer):
    """TRL's SFTTrainer with the throughput in its log."""


def build(
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    datasets: Mapping[str, Dataset],
    arguments: SharedArguments,
    training: Configuration,
    model: ModelConfig,
) -> Any:
    """The trainer of a base model on the rows of `pairs.load` or of `conversations.load`; loads the model.

    Raises:
        UserError: the model cannot be loaded or trained with these options.
    """
    kind: Any = MeteredSFTTrainer
    columns, options, shared = CONVERSATION_COLUMNS, {}, False
    if isinstance(training, KTOConfiguration):
        kind, columns = MeteredKTOTrainer, SIDE_COLUMNS
        if training.loss_type == "kto":
            columns = [*columns, "KL_completion_ids"]
        batch = training.per_device_train_batch_size
        datasets = {split: unpaired(dataset, batch, training.seed) for split, dataset in datasets.items()}
    elif isinstance(arguments, DPOArguments):
        kind, columns, shared = MeteredDPOTrainer, PAIR_COLUMNS, arguments.prefix_sharing
        options = {"prefix_sharing": shared, "reference_cache": Path(arguments.reference_cache).expanduser()}
    check_methods(kind)
    trl_functions.replace_functions()
    training.model_init_kwargs = weights.loading_options(training, model)
    on_main_process(lambda: weights.check_whole(base, model.model_revision, training))
    # An adapter that the run starts from is in it.
    of_base = replace(model, model_name_or_path=base)
    if isinstance(training, SFTConfiguration) and training.packing:
        # TRL would pack each process's part by itself, so that rows would depend on their number.
        training.dataset_num_proc = None
    # Before a LoRA adapter is drawn, so that every process draws the same one.
    set_seed(training.seed)
    with writing(rows.cache()), adapters.adapting():
        trainer = kind(
            base,
            args=training,
            train_dataset=datasets["train"].select_columns(columns),
            eval_dataset=datasets["dev"].select_columns(columns) if training.eval_strategy != "no" else None,
            processing_class=tokenizer,
            peft_config=adapters.settings_of(of_base),
            quantization_config=get_quantization_config(model),
            **options,
        )
    if trainer.accelerator.mixed_precision != format_of(training):
        raise UserError(
            f"mixed_precision: would be {trainer.accelerator.mixed_precision}, and the options say "
            f"{format_of(training)}; make --bf16 and --fp16 agree with the file that accelerate launches with"
        )
    if isinstance(training, SFTConfiguration) and (training.packing or training.padding_free):
        check_apart(bare(trainer.model, trainer.accelerator))
    # Also of an adapter's base, which PEFT's model hands on.
    generation.make_savable(trainer.model.generation_config, base)
    paired = isinstance(training, DPOConfiguration)
    trainer.meter = Meter(trainer.model, trainer.args.device, arguments.peak_tflops, paired, shared)
    adapters.leave_casts_out(trainer.model, trainer.accelerator)
    if recomputes_by_need(training):
        sizes = cost_model.sizes_of(datasets["train"])
        needed = need_of(sizes, shared, training, of_base, trainer.accelerator)
        trainer.recompute_by_need(bare(trainer.model, trainer.accelerator), needed, training.memory_share)
    return trainer
