"""The order of rows in training, which follows from the seed and the epoch alone."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Sampler

BY_PROMPT = "prompts"
"""The `train_sampling_strategy` of `by_prompt`."""


class OrderOfEpoch(Sampler[int]):
    """A sampler that draws an order of rows anew for each epoch: the same in all processes, and after resuming."""

    def __init__(self, rows: int, draw: Callable[[torch.Generator], Iterable[int]], seed: int) -> None:
        """`draw` returns an order of the numbers below `rows`."""
        self.rows = rows
        self.draw = draw
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch from now on."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw(torch.Generator().manual_seed(self.seed + self.epoch)))

    def __len__(self) -> int:
        return self.rows


def tell_epoch(sampler: Any, epoch: int) -> None:
    """Tell a loader's sampler of batches, and the samplers behind it, the number of the epoch.

    Where several processes resume, accelerate 1.15 and transformers 5.19 reach neither `OrderOfEpoch` nor that of
    `batch_rebalance`, which would go on in the order of the first epoch: rows would come twice or not at all.
    """
    while sampler is not None:
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        sampler = getattr(sampler, "batch_sampler", getattr(sampler, "sampler", None))


def by_prompt(prompts: Sequence[Sequence[int]], generator: torch.Generator) -> list[int]:
    """The rows in a random order of prompts; rows of one prompt follow each other, so that a batch can share it."""
    order = torch.randperm(len(prompts), generator=generator).tolist()
    return [row for prompt in order for row in prompts[prompt]]


def rows_by_prompt(prompts: Iterable[Sequence[int]]) -> list[list[int]]:
    """The rows of each prompt, given the token ids of every row's."""
    rows: dict[bytes, list[int]] = {}
    for row, ids in enumerate(prompts):
        rows.setdefault(hashlib.sha256(json.dumps(list(ids)).encode()).digest(), []).append(row)
    return [*rows.values()]
