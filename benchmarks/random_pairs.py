"""Random pairs as TRL stacks them, their loss, and their scores by plain transformers."""

from collections.abc import Sequence
from typing import Any

import torch

Batch = dict[str, torch.Tensor]


def random_pairs(sizes: Sequence[tuple[int, int, int]], vocabulary: int, device: str | torch.device) -> Batch:
    """A pair for each (tokens of the prompt, of the chosen, of the rejected): chosen rows above rejected ones.

    Rows are padded on the right; `labels` are -100 outside of the completions.
    """
    pairs = [[torch.randint(3, vocabulary, (count,)) for count in size] for size in sizes]
    rows = [(pair[0], pair[side]) for side in (1, 2) for pair in pairs]
    pad = torch.nn.utils.rnn.pad_sequence
    ids = [torch.cat(row) for row in rows]
    labels = [torch.cat([torch.full_like(prompt, -100), completion]) for prompt, completion in rows]
    return {
        "input_ids": pad(ids, batch_first=True).to(device),
        "attention_mask": pad([torch.ones_like(row) for row in ids], batch_first=True).to(device),
        "labels": pad(labels, batch_first=True, padding_value=-100).to(device),
    }


def dpo_loss(sums: torch.Tensor, reference: torch.Tensor | float = 0.0) -> torch.Tensor:
    """The sigmoid DPO loss with beta 0.1 of summed log-probs, chosen above rejected (Rafailov et al. 2023, eq. 7)."""
    chosen, rejected = (sums - reference).chunk(2)
    return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def score_alone(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of the trained tokens, row after row, and their sum in each row; the loss is propagated back."""
    rows = []
    for ids, mask, labels in zip(*batch.values(), strict=True):
        targets = labels[labels != -100]
        logits = model(ids[mask.bool()][None], use_cache=False, logits_to_keep=len(targets) + 1).logits[0, :-1]
        rows.append(logits.float().log_softmax(-1).gather(1, targets[:, None])[:, 0])
    sums = torch.stack([row.sum() for row in rows])
    dpo_loss(sums, sums.detach()).backward()
    return torch.cat(rows).detach(), sums.detach()
