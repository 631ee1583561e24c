"""All functions of TRL 1.16 that training replaces; each is first checked to exist."""

import contextlib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import torch
from trl.trainer import dpo_trainer, utils

from notewriter.ground.errors import UserError

THEIRS = getattr(utils, "_use_triton", None)
"""TRL 1.16's own function: whether a device has TRL's kernels."""


every_position = False
"""Whether all positions that the head is given have labels."""


@contextlib.contextmanager
def all_labelled() -> Iterator[None]:
    """Make TRL's fused head score every position that it is given."""
    global every_position
    every_position = True
    try:
        yield
    finally:
        every_position = False


def scores_labels_alone(device: torch.device) -> bool:
    """Whether TRL's fused head is to leave positions without a label out, which are most of a prompt's.

    TRL 1.16 does so only where it has kernels: elsewhere a device may compile anew for every number of positions, but a
    CPU does not. Where every position has a label (`all_labelled`), there is nothing to leave out, and looking for it
    would wait for the device.
    """
    if every_position:
        return False
    return device.type == "cpu" or bool(THEIRS and THEIRS(device))


def no_hash(module: Any) -> str:
    """TRL's name of its own cache of log-probs, which nothing reads: ours is keyed by the files (`sharing.reference`).

    TRL's would hash all weights in each process.
    """
    return ""


REPLACED = ((utils, "_use_triton", scores_labels_alone), (dpo_trainer, "hash_module", no_hash))
"""Modules of TRL, the names in them, and what takes their places."""


def replace_functions() -> None:
    """Make TRL call our functions.

    Raises:
        UserError: the installed TRL has no such function, and would train slower without a word.
    """
    for module, name, ours in REPLACED:
        if not hasattr(module, name):
            raise UserError(
                f"trl {version('trl')}: has no {module.__name__}.{name}, which training replaces; install the release "
                "that notewriter's constraints.txt names"
            )
        setattr(module, name, ours)
