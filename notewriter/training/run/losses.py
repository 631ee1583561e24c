"""TRL's DPO losses, and the options that only some of them read."""

import difflib

from trl import DPOConfig

from notewriter.ground.errors import UserError

LOSSES = (
    *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired"),
    *("apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"),
)
"""The values of `loss_type`, which TRL types as a list of strings: a test compares them with its loss's branches."""

SMOOTHED = {"exo_pair", "robust", "aot", "aot_unpaired"}
"""The losses that read `label_smoothing`."""

_WITH_REFERENCE = {*LOSSES} - {"sft"}

NEEDS: dict[str, tuple[str, set[str | bool]]] = {
    "label_smoothing": ("loss_type", {*SMOOTHED}),
    "discopop_tau": ("loss_type", {"discopop"}),
    "ld_alpha": ("loss_type", {*_WITH_REFERENCE}),
    "f_divergence_type": ("loss_type", {*_WITH_REFERENCE}),
    "f_alpha_divergence_coef": ("f_divergence_type", {"alpha_divergence"}),
    "ref_model_mixup_alpha": ("sync_ref_model", {True}),
    "ref_model_sync_steps": ("sync_ref_model", {True}),
    "precompute_ref_batch_size": ("precompute_ref_log_probs", {True}),
}
"""Options that TRL reads only with some values of another option, and otherwise ignores silently."""


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
