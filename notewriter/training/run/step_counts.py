"""The parts of a loss, each as its mean over a whole optimizer step: however a step is split, it trains the same.

A step is split into forwards, and over processes, whose gradients are averaged. A mean of means is that of the whole
only where all have the same count: of rows that is so but for the last step of an epoch, of tokens never.
"""

from collections.abc import Iterator
from typing import Any

import torch


class CountsSteps:
    """A mixin for a trainer of TRL on pairs or on their sides: it knows the share of a forward in its step."""

    step: torch.Tensor | None = None
    forwards = 1

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        """The batches of a step, whose rows and trained tokens of the better sides are counted over all processes."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)  # type: ignore[misc]
        if batches:
            accelerator: Any = self.accelerator  # type: ignore[attr-defined]
            counts = torch.stack([counts_of(batch) for batch in batches]).sum(0).to(device)
            self.step = accelerator.reduce(counts, reduction="sum")
            self.forwards = len(batches) * accelerator.num_processes
        return batches, items

    def shares(self, inputs: dict[str, torch.Tensor]) -> tuple[Any, Any]:
        """What a forward's mean over rows, and its mean over tokens, are multiplied with, to be averaged; 1 on dev."""
        if self.step is None or not self.model.training:  # type: ignore[attr-defined]
            return 1.0, 1.0
        rows, tokens = (counts_of(inputs) * self.forwards / self.step).float()
        return rows, tokens


def counts_of(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The rows of a batch, and the trained tokens of its first half, which in a batch of pairs is the better sides."""
    rows = torch.full((), len(inputs["input_ids"]), device=inputs["input_ids"].device)
    return torch.stack([rows, inputs["completion_mask"].chunk(2)[0][:, 1:].sum()]).double()
