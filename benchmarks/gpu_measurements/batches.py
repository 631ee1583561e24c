"""Batches of random pairs."""

from dataclasses import dataclass

import torch

from .machine import Machine

Batch = dict[str, torch.Tensor]
"""`input_ids`, `attention_mask` and `labels`, each of the shape (rows, length)."""


@dataclass(frozen=True)
class Lengths:
    """The lengths of a batch of pairs in tokens."""

    prompts: tuple[int, ...]
    completions: tuple[tuple[int, int], ...]
    """Of each pair, the chosen and the rejected."""


BATCHES = {
    "ragged": Lengths((2000, 1500), ((100, 80), (60, 100))),
    "short": Lengths((16, 9, 30, 1), ((5, 9), (1, 1), (1, 8), (7, 7))),
    "long": Lengths((16000,), ((200, 120),)),
}
"""What exactness is measured on: unequal lengths, one-token prompts and completions, prompts beyond every window."""

TOY_BATCHES = {
    "ragged": Lengths((40, 30), ((10, 8), (6, 10))),
    "short": BATCHES["short"],
    "long": Lengths((100,), ((20, 12),)),
}


def batch_lengths(machine: Machine, name: str) -> Lengths:
    """The lengths of one of `BATCHES`, or of its toy."""
    return (TOY_BATCHES if machine.toy else BATCHES)[name]


def stack(machine: Machine, lengths: Lengths, vocabulary: int) -> Batch:
    """Random pairs as TRL stacks them: the chosen rows above the rejected ones, padded on the right."""
    generator = torch.Generator().manual_seed(1)

    def tokens(count: int) -> torch.Tensor:
        return torch.randint(3, vocabulary, (count,), generator=generator)

    prompts = [tokens(length) for length in lengths.prompts]
    rows = [
        (prompt, tokens(both[side]))
        for side in (0, 1)
        for prompt, both in zip(prompts, lengths.completions, strict=True)
    ]
    length = max(len(prompt) + len(completion) for prompt, completion in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for row, (prompt, completion) in enumerate(rows):
        end = len(prompt) + len(completion)
        ids[row, :end], mask[row, :end] = torch.cat([prompt, completion]), 1
        labels[row, len(prompt) : end] = completion
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: tensor.to(machine.device) for name, tensor in batch.items()}
