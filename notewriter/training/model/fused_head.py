"""A private function of TRL 1.16 in another one's place: where the fused head scores labelled positions alone."""

from importlib.metadata import version

import torch
from trl.trainer import utils

from notewriter.ground.errors import UserError

THEIRS = getattr(utils, "_use_triton", None)
"""TRL 1.16's: whether a device has its kernels."""


def scores_labels_alone(device: torch.device) -> bool:
    """Whether TRL's fused head is to leave positions without a label out, which are most of a prompt's.

    TRL 1.16 does so only where it has kernels: elsewhere a device may compile anew for every number of positions, but a
    CPU does not.
    """
    return device.type == "cpu" or bool(THEIRS and THEIRS(device))


def score_labels_alone() -> None:
    """Have TRL's fused head ask `scores_labels_alone`.

    Raises:
        UserError: the installed TRL has no such function, and would train slower without a word.
    """
    if THEIRS is None:
        raise UserError(
            f"trl {version('trl')}: has no trl.trainer.utils._use_triton, which training replaces; install the release "
            "that notewriter's constraints.txt names"
        )
    utils._use_triton = scores_labels_alone
