"""A random order of pairs in which those of one prompt follow each other, so that a batch can share it."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch.utils.data import Sampler

BY_PROMPT = "prompts"
"""The `train_sampling_strategy` of this order."""


class PromptsTogether(Sampler[int]):
    """Rows in the order of prompts that is drawn anew for each epoch; the rows of a prompt stay in theirs.

    The order depends on the seed and the epoch alone: it is the same in all processes, and after resuming.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], seed: int, epoch: Callable[[], int]) -> None:
        """`prompts` has the rows of each prompt (`rows_by_prompt`); `epoch` tells the number of the current one.

        accelerate 1.15 tells a sampler its epoch too, but not behind the batches of several processes after resuming.
        """
        self.prompts = prompts
        self.seed = seed
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch())
        for prompt in torch.randperm(len(self.prompts), generator=generator).tolist():
            yield from self.prompts[prompt]

    def __len__(self) -> int:
        return sum(map(len, self.prompts))


def rows_by_prompt(prompts: Iterable[Sequence[int]]) -> list[list[int]]:
    """The rows of each prompt, given the token ids of every row's."""
    rows: dict[bytes, list[int]] = {}
    for row, ids in enumerate(prompts):
        rows.setdefault(hashlib.sha256(json.dumps(list(ids)).encode()).digest(), []).append(row)
    return [*rows.values()]
