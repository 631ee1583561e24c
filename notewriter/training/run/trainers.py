"""The trainers of DPO and SFT: TRL's, with the throughput in their log."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, set_seed
from trl import ModelConfig, SFTTrainer, get_peft_config, get_quantization_config

from notewriter.ground.errors import writing
from notewriter.training.inputs import rows
from notewriter.training.model import weights
from notewriter.training.options import DPOArguments, DPOConfiguration, SFTArguments, SFTConfiguration
from notewriter.training.run.resumption import on_main_process
from notewriter.training.run.throughput import Metered
from notewriter.training.sharing.reference import CachedReferenceTrainer

PAIR_COLUMNS = ["prompt_ids", "chosen_ids", "rejected_ids", "length"]
"""Of pairs: the checked tokens, and `length` for `train_sampling_strategy: group_by_length`."""

CONVERSATION_COLUMNS = ["input_ids", "labels", "length"]


class EndsAtMaxSteps:
    """A mixin for a trainer: resumed from the checkpoint of its last step, it trains no further.

    transformers 5.19 takes one more step if the last one was not the end of an epoch.
    """

    def _run_epoch(self, *arguments: Any, **state: Any) -> None:
        if self.state.global_step >= self.state.max_steps:  # type: ignore[attr-defined]
            self.control.should_training_stop = True  # type: ignore[attr-defined]
            return
        super()._run_epoch(*arguments, **state)  # type: ignore[misc]


class MeteredDPOTrainer(EndsAtMaxSteps, Metered, CachedReferenceTrainer):
    """The DPO trainer with the throughput in its log."""


class MeteredSFTTrainer(EndsAtMaxSteps, Metered, SFTTrainer):
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
    training.model_init_kwargs = weights.loading_options(training, model)
    on_main_process(lambda: weights.check_whole(base, model.model_revision, training))
    # Before a LoRA adapter is drawn, so that every process draws the same one.
    set_seed(training.seed)
    with writing(rows.cache()):
        trainer = MeteredDPOTrainer(
            base,
            prefix_sharing=arguments.prefix_sharing,
            reference_cache=Path(arguments.reference_cache).expanduser(),
            args=training,
            train_dataset=datasets["train"].select_columns(PAIR_COLUMNS),
            eval_dataset=datasets["dev"].select_columns(PAIR_COLUMNS) if training.eval_strategy != "no" else None,
            processing_class=tokenizer,
            peft_config=get_peft_config(model),
            quantization_config=get_quantization_config(model),
        )
    trainer.measure(lora=model.use_peft, peak=arguments.peak_tflops, paired=True, shared=arguments.prefix_sharing)
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
    training.model_init_kwargs = weights.loading_options(training, model)
    on_main_process(lambda: weights.check_whole(base, model.model_revision, training))
    set_seed(training.seed)
    tokens = {split: dataset.select_columns(CONVERSATION_COLUMNS) for split, dataset in datasets.items()}
    with writing(rows.cache()):
        trainer = MeteredSFTTrainer(
            model=base,
            args=training,
            train_dataset=tokens["train"],
            eval_dataset=tokens["dev"] if training.eval_strategy != "no" else None,
            processing_class=tokenizer,
            peft_config=get_peft_config(model),
            quantization_config=get_quantization_config(model),
        )
    trainer.measure(lora=model.use_peft, peak=arguments.peak_tflops, paired=False)
    return trainer
