"""A run ends at the first loss or gradient norm that is not finite; a model with such weights is never finished."""

import math
from pathlib import Path
from typing import Any

import torch

from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import checkpoints_of
from notewriter.training.model.weights import broken_tensor
from notewriter.training.run.resumption import on_main_process

SKIPPED = 24
"""Steps that float16 may skip one after another: it halves its scale, first 2^16, each time until gradients fit."""


class StopsWhenDiverged:
    """A mixin for a trainer of transformers: it ends before the optimizer takes a step that is not finite.

    DeepSpeed takes it with the backward; the weights are then lost, and the checkpoint before them is not.
    """

    losses: list[torch.Tensor]
    skipped = 0

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Train on a batch, and keep its loss until the step is complete, without waiting for the device."""
        loss: torch.Tensor = super().training_step(*arguments, **options)  # type: ignore[misc]
        self.losses = [*getattr(self, "losses", []), loss]
        return loss

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        """The gradient's norm, once it and the losses of the step are known to be finite, on all processes.

        Raises:
            UserError: they are not; names the step and the last checkpoint whose weights are.
        """
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[misc]
        accelerator: Any = self.accelerator  # type: ignore[attr-defined]
        loss, self.losses = torch.stack(self.losses).sum(), []
        unlike_numbers = accelerator.reduce((~loss.isfinite()).float(), reduction="sum").item()
        # DeepSpeed's norm is then -1, or that of the step before.
        overflows = not 0 <= float(norm or 0) < math.inf or accelerator.optimizer_step_was_skipped
        self.skipped = self.skipped + 1 if overflows else 0
        if unlike_numbers:
            self.stop_diverged("loss")
        if overflows and (accelerator.mixed_precision != "fp16" or self.skipped > SKIPPED):
            self.stop_diverged("gradient's norm")
        return norm

    def stop_diverged(self, what: str) -> None:
        """Raise the error that names the step, and the last checkpoint with finite weights."""
        run = Path(self.args.output_dir)  # type: ignore[attr-defined]
        step = self.state.global_step + 1  # type: ignore[attr-defined]
        good = on_main_process(lambda: last_finite(run))
        start = f", from the start or from {good}, the last checkpoint with finite weights" if good else ""
        raise UserError(
            f"{run}: step {step}: the {what} is not finite: training has diverged and ends here; give a lower "
            f"--learning_rate or more --warmup_steps, with another --output_dir{start}"
        )


def last_finite(run: Path) -> Path | None:
    """The newest checkpoint of a run whose saved weights are all finite; None if there is none."""
    newest_first = reversed(checkpoints_of(run).values())
    return next(
        (each for each in newest_first if any(each.glob("*model*.safetensors")) and not broken_tensor(each)), None
    )


def check_finite(run: Path) -> None:
    """Check the weights that a run ends with.

    Raises:
        UserError: one of them is not finite; names the last checkpoint whose weights are.
    """
    if name := broken_tensor(run):
        good = last_finite(run)
        raise UserError(
            f"{run}: training has diverged in its last step: {name} has values that are not finite; give a lower "
            f"--learning_rate, with another --output_dir{f'; the weights of {good} are finite' if good else ''}"
        )
