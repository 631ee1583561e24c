"""The order of rows in training, which follows from the seed and the epoch alone."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch.utils.data import Sampler

BY_PROMPT = "prompts"
"""The `train_sampling_strategy` of `by_prompt`."""


class OrderOfEpoch(Sampler[int]):
    """A sampler that draws an order of rows anew for each epoch: the same in all processes, and after resuming."""

    def __init__(
        self, rows: int, draw: Callable[[torch.Generator], Iterable[int]], seed: int, epoch: Callable[[], int]
    ) -> None:
        """`draw` returns an order of the numbers below `rows`; `epoch` returns the number of the current epoch.

        accelerate 1.15 tells a sampler its epoch too, but not behind the batches of several processes after resuming.
        """
        self.rows = rows
        self.draw = draw
        self.seed = seed
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw(torch.Generator().manual_seed(self.seed + self.epoch())))

    def __len__(self) -> int:
        return self.rows


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
