"""Log-probs, loss and gradients of a batch of pairs, computed one row at a time or all at once."""

from dataclasses import dataclass

import torch

from .batches import Batch

BETA = 0.1
"""Of the DPO loss."""


@dataclass
class Scores:
    """What scoring a batch gave: log-probs of the trained tokens, row after row, the loss, and all gradients."""

    log_probs: torch.Tensor
    loss: float
    gradients: dict[str, torch.Tensor]


def loss_of(sums: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The sigmoid DPO loss of summed log-probs, chosen above rejected (Rafailov et al. 2023, equation 7)."""
    chosen, rejected = (sums - reference).chunk(2)
    return -torch.nn.functional.logsigmoid(BETA * (chosen - rejected)).mean()


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The gradients of a model's trained parameters by name, in their own type."""
    return {
        name.replace("_orig_mod.", ""): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def score_alone(model: torch.nn.Module, batch: Batch) -> Scores:
    """Score each row without padding and without the others, with transformers' own forward.

    The reference log-probs of the loss are the very log-probs found, as in the first step of DPO: its gradient is then
    that of the margin, whatever the lengths.
    """
    rows = []
    for ids, mask, labels in zip(*batch.values(), strict=True):
        ids, labels = ids[mask.bool()], labels[mask.bool()]
        trained = int((labels != -100).sum())
        logits = model(input_ids=ids[None], use_cache=False, logits_to_keep=trained + 1).logits[0, :-1]
        rows.append(logits.float().log_softmax(-1).gather(1, labels[-trained:, None])[:, 0])
    sums = torch.stack([row.sum() for row in rows])
    loss = loss_of(sums, sums.detach())
    loss.backward()
    return Scores(torch.cat(rows).detach(), loss.item(), gradients_of(model))


def score_stack(model: torch.nn.Module, batch: Batch, reference: torch.Tensor) -> Scores:
    """Score a stack with TRL's head, which a shared model lays out anew; `reference` is one log-prob for each row."""
    found = model(**batch, fused_lm_head=True, use_cache=False).log_probs
    loss = loss_of(found.float().sum(1), reference)
    loss.backward()
    return Scores(found.detach().float()[batch["labels"][:, 1:] != -100], loss.item(), gradients_of(model))
