"""The steps of a training run: their end, their log, and each forward's share of a step.

A step is split into forwards, and over processes, whose gradients are averaged. A mean of means equals the mean of the
whole only if all parts have the same count. Counts of rows are equal except in the last step of an epoch, counts of
tokens never. So the parts of a loss on pairs are means over a whole optimizer step: however a step is split, it trains
the same.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import BatchRebalanceSampler, LengthGroupedSampler, get_length_grouped_indices

from notewriter.ground.errors import UserError
from notewriter.training.run.recomputation import RecomputesByNeed
from notewriter.training.run.resumption import on_main_process
from notewriter.training.run.saved import last_finite
from notewriter.training.run.throughput import Meter
from notewriter.training.sampler import OrderOfEpoch, tell_epoch

SKIPPED = 24
"""Steps that float16 may skip one after another: it halves its scale, first 2^16, each time until gradients fit."""


class Steps(RecomputesByNeed):
    """A mixin for a trainer of TRL: its throughput is logged, and it ends at its last step or where it diverges.

    The run ends before the optimizer takes a step that is not finite. DeepSpeed takes this step within the backward
    pass: the weights are then lost, but the last checkpoint is not.
    """

    losses: list[torch.Tensor]
    meter: Meter | None = None
    skipped = 0

    def _run_epoch(self, *arguments: Any, **state: Any) -> None:
        """transformers' epoch; resumed from the checkpoint of its last step, a run trains no further.

        transformers 5.19 takes one more step if the last one was not the end of an epoch.
        """
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        tell_epoch(state["train_dataloader"].batch_sampler, state["epoch"])
        super()._run_epoch(*arguments, **state)  # type: ignore[no-untyped-call]

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[Any] | None:
        """transformers' sampler, whose order follows from the seed and the epoch alone.

        transformers 5.19 draws that of group_by_length from torch's global generator, so that a resumed run would
        repeat rows and leave others out, and groups the rows of a process's share of a step, so that the order would
        depend on the number of processes; batch_rebalance has one constant seed.
        """
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, BatchRebalanceSampler):
            sampler.seed = self.seed_of_order()
        if isinstance(sampler, LengthGroupedSampler):
            rows = sampler.batch_size * self.args.world_size
            return self.of_epoch(len(sampler), partial(get_length_grouped_indices, sampler.lengths, rows, None))
        return sampler

    def of_epoch(self, rows: int, draw: Callable[[torch.Generator], Iterable[int]]) -> Sampler[int]:
        """A sampler of the orders that `draw` returns for the run's seed and each epoch."""
        return OrderOfEpoch(rows, draw, self.seed_of_order())

    def seed_of_order(self) -> int:
        """`data_seed`, or `seed` without it."""
        return int(self.args.seed if self.args.data_seed is None else self.args.data_seed)

    def training_step(self, model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> torch.Tensor:
        """Count a batch, train on it, and keep its loss until the step is complete, without waiting for the device."""
        if self.meter is not None:
            self.meter.count(inputs)
        loss: torch.Tensor = super().training_step(model, inputs, *arguments, **options)
        self.losses = [*getattr(self, "losses", []), loss]
        return loss

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        """The gradient's norm, once it and the losses of the step are known to be finite, on all processes.

        Raises:
            UserError: they are not; names the step and the last checkpoint whose weights are.
        """
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        loss, self.losses = torch.stack(self.losses).sum(), []
        unlike_numbers = self.accelerator.reduce((~loss.isfinite()).float(), reduction="sum").item()
        # DeepSpeed's norm is then -1, or that of the step before.
        overflows = not 0 <= float(norm or 0) < math.inf or self.accelerator.optimizer_step_was_skipped
        self.skipped = self.skipped + 1 if overflows else 0
        if unlike_numbers:
            self.stop_diverged("loss")
        if overflows and (self.accelerator.mixed_precision != "fp16" or self.skipped > SKIPPED):
            self.stop_diverged("gradient's norm")
        return norm

    def stop_diverged(self, what: str) -> None:
        """Raise the error that names the step, and the last checkpoint with finite weights."""
        run = Path(self.args.output_dir or "")
        step = self.state.global_step + 1
        good = on_main_process(lambda: last_finite(run))
        start = f", from the start or from {good}, the last checkpoint with finite weights" if good else ""
        raise UserError(
            f"{run}: step {step}: the {what} is not finite: training has diverged and ends here; give a lower "
            f"--learning_rate or more --warmup_steps, with another --output_dir{start}"
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with the throughput if the entry is of training steps."""
        if self.meter is not None and "loss" in logs:
            logs |= self.meter.read(self.accelerator.reduce, self.accelerator.num_processes)
        super().log(logs, start_time)


class OnPairs(Steps):
    """A mixin for a trainer of TRL on pairs or on their sides: it takes checked tokens, and shares of a step."""

    model: Any
    _signature_columns: Any
    step: torch.Tensor | None = None
    forwards = 1

    def _prepare_dataset(self, dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Leave a dataset with token ids unchanged; TRL tokenises any other.

        TRL would render the checked pairs again, and adds no end of turn where the chat template has none (GLM-4).
        """
        if "prompt_ids" in (dataset.column_names or ()):
            return dataset
        return super()._prepare_dataset(dataset, *arguments, **options)  # type: ignore[misc]

    def _set_signature_columns_if_needed(self) -> None:
        """Keep `length`, which `train_sampling_strategy: group_by_length` goes by, beside the columns of TRL."""
        super()._set_signature_columns_if_needed()
        self._signature_columns = list(dict.fromkeys([*self._signature_columns, "length"]))

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        """The batches of a step, whose rows and trained tokens of the better sides are counted over all processes."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if batches:
            counts = torch.stack([counts_of(batch) for batch in batches]).sum(0).to(device)
            self.step = self.accelerator.reduce(counts, reduction="sum")
            self.forwards = len(batches) * self.accelerator.num_processes
        return batches, items

    def shares(self, inputs: dict[str, torch.Tensor]) -> tuple[Any, Any]:
        """The weights of a forward's mean over rows and of its mean over tokens in the average; 1 on dev."""
        if self.step is None or not self.model.training:
            return 1.0, 1.0
        rows, tokens = (counts_of(inputs) * self.forwards / self.step).float()
        return rows, tokens


def counts_of(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The rows of a batch, and the trained tokens of its first half, which in a batch of pairs is the better sides."""
    rows = torch.full((), len(inputs["input_ids"]), device=inputs["input_ids"].device)
    return torch.stack([rows, inputs["completion_mask"].chunk(2)[0][:, 1:].sum()]).double()
