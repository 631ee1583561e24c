"""The losses on pairs, TRL's and those without a reference, and the options that only some of them read.

TRL has SimPO and ORPO in trainers of their own that build all logits, render the chat template themselves and score
each prompt twice. Here they are losses of the DPO trainer: the same checked tokens, shared prompts and fused head, and
no reference in memory. Their values are those of TRL's trainers (tested). Of ORPO's only the first term differs, which
TRL takes over the prompt too, and the paper, as here, over the completion alone.
"""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from trl import DPOConfig

from notewriter.ground.config import choose
from notewriter.ground.errors import UserError

OF_A_REFERENCE = ("ld_alpha", "f_divergence_type", "use_weighting", "precompute_ref_log_probs", "sync_ref_model")
"""Options that every loss with a reference reads."""


class Loss(NamedTuple):
    """A loss on pairs: the options that not every loss reads, whether it needs a reference, and whether it is TRL's."""

    options: tuple[str, ...] = ()
    needs_reference: bool = True
    is_of_trl: bool = True

    def reads(self, option: str) -> bool:
        """Whether the loss reads one of the options in `NEEDS`."""
        return option in self.options or (self.needs_reference and option in OF_A_REFERENCE)


LOSSES = {
    "sigmoid": Loss(),
    "hinge": Loss(),
    "ipo": Loss(),
    "exo_pair": Loss(("label_smoothing",)),
    "nca_pair": Loss(),
    "robust": Loss(("label_smoothing",)),
    "bco_pair": Loss(),
    "sppo_hard": Loss(),
    "aot": Loss(("label_smoothing",)),
    "aot_unpaired": Loss(("label_smoothing",)),
    "apo_zero": Loss(),
    "apo_down": Loss(),
    "discopop": Loss(("discopop_tau",)),
    "sft": Loss(needs_reference=False),
    "sigmoid_norm": Loss(),
    "orpo": Loss(needs_reference=False, is_of_trl=False),
    "simpo": Loss(("simpo_gamma",), needs_reference=False, is_of_trl=False),
}
"""The values of `loss_type`, which TRL types as a list of strings: a test compares TRL's with its loss's branches."""

NEEDS: dict[str, tuple[str, Collection[str | bool]]] = {
    option: ("loss_type", {name for name, loss in LOSSES.items() if loss.reads(option)})
    for option in (*(option for loss in LOSSES.values() for option in loss.options), *OF_A_REFERENCE)
} | {
    "f_alpha_divergence_coef": ("f_divergence_type", {"alpha_divergence"}),
    "ref_model_mixup_alpha": ("sync_ref_model", {True}),
    "ref_model_sync_steps": ("sync_ref_model", {True}),
    "precompute_ref_batch_size": ("precompute_ref_log_probs", {True}),
}
"""Options that are read only with some values of another option, and that TRL otherwise ignores silently."""

CLOSEST = 1e-6
"""The least distance of a mean log-probability from 0, where the odds are infinite."""


def is_reference_free(losses: Collection[str]) -> bool:
    """Whether no loss of a run needs a reference."""
    return not any(LOSSES[loss].needs_reference for loss in losses)


def is_read(option: str, training: Any) -> bool:
    """Whether a run reads an option at all."""
    other, values = NEEDS.get(option, ("", ()))
    chosen = getattr(training, other, None)
    return option not in NEEDS or any(each in values for each in (chosen if isinstance(chosen, list) else [chosen]))


def check_read(training: Any, options: Iterable[str]) -> None:
    """Check that a run reads each of these options that was changed.

    Raises:
        UserError: it does not.
    """
    defaults = training.__dataclass_fields__
    for option in options:
        if getattr(training, option) != defaults[option].default and not is_read(option, training):
            other, values = NEEDS[option]
            chosen = getattr(training, other)
            need = " or ".join(sorted(str(value).lower() for value in values))
            raise UserError(
                f"{option}: is ignored with {other} "
                f"{', '.join(map(str, chosen if isinstance(chosen, list) else [chosen])).lower()}; leave it out, or "
                f"set {other} to {need}"
            )


def check_losses(training: DPOConfig) -> None:
    """Check the losses and their options before the first step, where TRL looks at them.

    Raises:
        UserError: an unknown loss, an option that no chosen loss reads, or a value that one cannot be computed with.
    """
    for loss in training.loss_type:
        choose("loss_type", loss, LOSSES)
    if not all(LOSSES[loss].is_of_trl for loss in training.loss_type) and not is_reference_free(training.loss_type):
        without = sorted(name for name, loss in LOSSES.items() if not loss.needs_reference)
        ours = (name for name, loss in LOSSES.items() if not loss.is_of_trl)
        raise UserError(
            f"loss_type: {', '.join(training.loss_type)} mixes losses with and without a reference; give only losses "
            f"among {', '.join(without)}, or none of {', '.join(ours)}"
        )
    check_read(training, NEEDS)
    if "sft" in training.loss_type and training.use_weighting:
        raise UserError(
            "use_weighting: weights pairs, but the loss sft is a mean over the tokens of all pairs; leave out "
            "use_weighting or sft"
        )
    smoothing = training.label_smoothing
    if "exo_pair" in training.loss_type and not 0 < smoothing < 1:
        raise UserError(f"label_smoothing: exo_pair needs a value between 0 and 1, not {smoothing}; try 0.001")
    if "robust" in training.loss_type and not 0 <= smoothing < 0.5:
        raise UserError(f"label_smoothing: robust needs a value from 0 to below 0.5, not {smoothing}; try 0.1")


def simpo(chosen: torch.Tensor, rejected: torch.Tensor, beta: float, gamma: float) -> torch.Tensor:
    """SimPO's loss (Meng et al. 2024, arXiv 2405.14734, equation 6) of each pair.

    `chosen` and `rejected` are the mean log-probabilities of a completion's tokens; `gamma` is the target margin.
    """
    return -F.logsigmoid(beta * (chosen - rejected) - gamma)


def odds_ratio(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """ORPO's loss of the odds ratio (Hong et al. 2024, arXiv 2403.07691, equation 7) of each pair."""
    return -F.logsigmoid(log_odds(chosen) - log_odds(rejected))


def log_odds(log_probs: torch.Tensor) -> torch.Tensor:
    """log(p / (1 - p)) of mean log-probabilities log(p)."""
    below = log_probs.clamp(max=-CLOSEST)
    return below - torch.log(-torch.expm1(below))
