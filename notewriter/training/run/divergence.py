"""A run ends at the first loss or gradient norm that is not finite; a model with such weights is never finished."""

from pathlib import Path

from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import checkpoints_of
from notewriter.training.model.weights import broken_tensor


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
