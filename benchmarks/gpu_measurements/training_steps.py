"""Training steps of TRL's DPOTrainer, as it comes and with shared prompts: seconds, memory, and the estimate of it."""

import copy
import itertools
import statistics
import tempfile
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    ByT5Tokenizer,
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from .attention import attention_calls, best_attention
from .machine import Machine
from .memory_estimate import predicted
from .results import Record
from .setting import Pair, Setting, StepTokens, random_pairs, step_tokens
from .shapes import random_model

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset
    from trl import DPOTrainer

WARM_UP = 2
"""Steps that are not counted: they allocate, compile kernels and load libraries."""


class Stopwatch(TrainerCallback):
    """The seconds of each step from the end of the one before it, and the highest use of memory, after `WARM_UP`."""

    def __init__(self, machine: Machine, most_steps: int, most_seconds: float) -> None:
        self.machine, self.most_steps, self.most_seconds = machine, most_steps, most_seconds
        self.ends: list[float] = []
        self.peak: int | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """After the optimizer's step."""
        self.machine.synchronize()
        self.ends.append(time.perf_counter())
        steps = len(self.ends) - WARM_UP
        if steps <= 0:
            self.machine.reset_peak()
            return
        self.peak = self.machine.peak()
        enough = steps >= 3 and sum(self.seconds()) >= self.most_seconds
        if steps >= self.most_steps or enough:
            control.should_training_stop = True

    def seconds(self) -> list[float]:
        """The seconds of each step after `WARM_UP`."""
        ends = self.ends[WARM_UP - 1 :]
        return [end - start for start, end in itertools.pairwise(ends)]


def fast(machine: Machine, **options: Any) -> Record:
    """Seconds of a training step and its memory; the median of up to ten steps after `WARM_UP`."""
    watch = Stopwatch(machine, most_steps=2 if machine.toy else 10, most_seconds=5)
    record = train(machine, watch, Setting(**options))
    seconds = watch.seconds()
    median = statistics.median(seconds)
    return record | {
        "steps": len(seconds),
        "seconds": median,
        "slowest": max(seconds),
        "tokens_per_second": record["tokens"] / median,
        "unique_tokens_per_second": record["unique_tokens"] / median,
        "peak_bytes": watch.peak,
    }


def train(machine: Machine, watch: Stopwatch, setting: Setting) -> Record:
    """Train a random model on random pairs for some steps; what was computed, and what the estimate says of it."""
    from training.prefix_sharing import share_prefixes

    if machine.toy:
        setting = replace(setting, prompt=setting.prompt // 50, completion=setting.completion // 10)
    attention = best_attention() if setting.way == "TRL" else "sdpa"
    dtype = torch.bfloat16 if setting.lora else torch.float32
    model = random_model(machine, setting.shape, dtype, attention)
    pairs = random_pairs(setting, (watch.most_steps + WARM_UP) * setting.batch, model.config.vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(machine, setting, model, pairs, watch, folder)
        if setting.way == "shared":
            for each in (model, trainer.ref_model):
                if each is not None:
                    share_prefixes(trainer.accelerator.unwrap_model(each))
        machine.reset_peak()
        with attention_calls() as calls:
            trainer.train()
    tokens = step_tokens(setting, pairs)
    record: Record = {"attention": " and ".join(sorted(calls)) if setting.way == "shared" and calls else attention}
    record |= {"tokens": tokens.tokens, "unique_tokens": tokens.unique_tokens}
    record |= {"operations": operations_of_a_step(model, setting, tokens)}
    return record | {"predicted": predicted(machine, setting, tokens.longest)}


def build_trainer(
    machine: Machine, setting: Setting, model: PreTrainedModel, pairs: list[Pair], watch: Stopwatch, folder: str
) -> "DPOTrainer":
    """TRL's trainer for a setting, which stops when the watch says so."""
    import datasets
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer

    class Trainer(DPOTrainer):
        """TRL's, given token ids instead of text."""

        def _prepare_dataset(self, dataset: "Dataset | IterableDataset", *_: object) -> "Dataset | IterableDataset":
            return dataset

    datasets.disable_progress_bars()
    arguments = DPOConfig(
        output_dir=folder,
        per_device_train_batch_size=setting.batch,
        max_steps=len(pairs) // setting.batch,
        max_length=None,
        learning_rate=1e-6,
        bf16=True,
        use_cpu=machine.device.type == "cpu",
        gradient_checkpointing=setting.checkpointing,
        logging_steps=10_000,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    adapter = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    return Trainer(
        model,
        ref_model=None if setting.lora else copy.deepcopy(model),
        args=arguments,
        train_dataset=datasets.Dataset.from_list(pairs),
        processing_class=ByT5Tokenizer(),
        peft_config=adapter if setting.lora else None,
        callbacks=[watch],
    )


def operations_of_a_step(model: PreTrainedModel, setting: Setting, step: StepTokens) -> float:
    """The operations that a model needs, forward and backward, without the reference and recomputation."""
    from training.throughput import operations

    each, attended = operations(model, setting.lora)
    return step.unique_tokens * each + attended * step.squares * step.unique_tokens / step.tokens
