"""TRL's DPO losses, the options that only some of them read, and weights of pairs."""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from trl import DPOConfig

from notewriter.ground.errors import UserError

WEIGHT = "weight"
"""The column, and the entry of a batch, with the weight of each pair."""


class Loss(NamedTuple):
    """What one of TRL's losses reads beside the policy's log-probs, and whether its shares belong to single pairs."""

    reference: bool = True
    """Whether it reads the reference's log-probs."""
    smoothing: bool = False
    """Whether it reads `label_smoothing`."""
    sorts: bool = False
    """Whether it sorts a batch, so that no share of it is one pair's."""


LOSSES = {
    "sigmoid": Loss(),
    "hinge": Loss(),
    "ipo": Loss(),
    "exo_pair": Loss(smoothing=True),
    "nca_pair": Loss(),
    "robust": Loss(smoothing=True),
    "bco_pair": Loss(),
    "sppo_hard": Loss(),
    "aot": Loss(smoothing=True, sorts=True),
    "aot_unpaired": Loss(smoothing=True, sorts=True),
    "apo_zero": Loss(),
    "apo_down": Loss(),
    "discopop": Loss(),
    "sft": Loss(reference=False),
    "sigmoid_norm": Loss(),
}
"""The values of `loss_type`, which TRL types as a list of strings: a test compares them with its loss's branches."""

_WITH_REFERENCE = {name for name, loss in LOSSES.items() if loss.reference}

NEEDS: dict[str, tuple[str, set[str | bool]]] = {
    "label_smoothing": ("loss_type", {name for name, loss in LOSSES.items() if loss.smoothing}),
    "discopop_tau": ("loss_type", {"discopop"}),
    "ld_alpha": ("loss_type", {*_WITH_REFERENCE}),
    "f_divergence_type": ("loss_type", {*_WITH_REFERENCE}),
    "f_alpha_divergence_coef": ("f_divergence_type", {"alpha_divergence"}),
    "ref_model_mixup_alpha": ("sync_ref_model", {True}),
    "ref_model_sync_steps": ("sync_ref_model", {True}),
    "precompute_ref_batch_size": ("precompute_ref_log_probs", {True}),
}
"""Options that TRL reads only with some values of another option, and otherwise ignores silently."""


class WithWeights:
    """TRL's collator of pairs, and the pairs' weights if they have any."""

    def __init__(self, collator: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> None:
        self.collator = collator

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch, with the weights, shape (pairs,), as `WEIGHT`."""
        batch = self.collator(examples)
        if WEIGHT in examples[0]:
            batch[WEIGHT] = torch.tensor([example[WEIGHT] for example in examples])
        return batch


def weighted(model: Callable[..., Any], weights: torch.Tensor) -> Callable[..., Any]:
    """A model whose loss has the gradient of sum_i w_i loss_i / n for n pairs, of which the chosen sides come first.

    TRL reduces a batch to its mean and has no place for weights. Each pair's loss depends on the weights of the model
    through its own log-probs alone (except where it sorts), so that scaling the gradient of these log-probs, shape
    (2 n, tokens), scales the pair's share. The value of the loss stays that of unweighted pairs. At a weight of 1 the
    gradient is the same to the bit; a pair of weight 0 has none.
    """

    def forward(*arguments: Any, **options: Any) -> Any:
        outputs = model(*arguments, **options)
        if outputs.log_probs is not None and outputs.log_probs.requires_grad:
            rows = weights.repeat(2)[:, None]
            outputs.log_probs.register_hook(lambda gradient: gradient * rows.to(gradient.dtype))
        return outputs

    return forward


def check_weighting(training: DPOConfig) -> None:
    """Check that pairs can be weighted.

    Raises:
        UserError: a loss compares the pairs of a batch with each other.
    """
    if sorting := [name for name in training.loss_type if LOSSES[name].sorts]:
        raise UserError(
            f"weight_by_margin: {sorting[0]} sorts the pairs of a batch, and no share of it is one pair's; leave it "
            "out, or use another loss_type"
        )


def check_losses(training: DPOConfig) -> None:
    """Check the losses and their options before the first step, where TRL looks at them.

    Raises:
        UserError: an unknown loss, an option that no chosen loss reads, or a value that one cannot be computed with.
    """
    for loss in training.loss_type:
        if loss not in LOSSES:
            near = difflib.get_close_matches(loss, LOSSES, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(LOSSES)}"
            raise UserError(f"loss_type: TRL has no loss {loss!r}; {remedy}")
    defaults = DPOConfig.__dataclass_fields__
    for option, (other, values) in NEEDS.items():
        chosen = getattr(training, other)
        chosen = chosen if isinstance(chosen, list) else [chosen]
        if getattr(training, option) != defaults[option].default and values.isdisjoint(chosen):
            need = " or ".join(sorted(str(value).lower() for value in values))
            raise UserError(
                f"{option}: is ignored with {other} {', '.join(map(str, chosen)).lower()}; leave it out, or set "
                f"{other} to {need}"
            )
    smoothing = training.label_smoothing
    if "exo_pair" in training.loss_type and not 0 < smoothing < 1:
        raise UserError(f"label_smoothing: exo_pair needs one between 0 and 1, not {smoothing}; try 0.001")
    if "robust" in training.loss_type and not 0 <= smoothing < 0.5:
        raise UserError(f"label_smoothing: robust needs one from 0 to below 0.5, not {smoothing}; try 0.1")
