"""What the launch of a run decides: the number format of its passes, and locks that DeepSpeed would wait for."""

import logging
import os
from pathlib import Path

import torch

from notewriter.models.processor import number_format

logger = logging.getLogger(__name__)


def computes_in_bfloat16(use_cpu: bool, deepspeed: bool) -> bool:
    """Whether forward and backward run in bfloat16 unless the user says otherwise."""
    if not use_cpu and torch.accelerator.is_available():
        return torch.cuda.is_available()
    # With DeepSpeed transformers takes bfloat16 to mean a GPU's, and refuses.
    return number_format() == "bfloat16" and not deepspeed


def warn_of_extension_locks() -> None:
    """Warn of locks on PyTorch's compiled extensions, for which DeepSpeed waits silently and forever.

    A process that was killed while compiling leaves one behind.
    """
    # A quarter of a second, which only DeepSpeed needs.
    from torch.utils.cpp_extension import get_default_build_root

    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    for lock in sorted({*folder.glob("*/lock"), *folder.glob("*/*/lock")}):
        logger.warning(
            "%s: this run waits until the lock is gone; another process is compiling there, or was killed while it "
            "did: if none is, remove this file",
            lock,
        )
