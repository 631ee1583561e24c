"""How the C library hands out the memory of a run on the CPU."""

import ctypes
from typing import Any

from transformers import TrainerCallback, TrainerState

# glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX = -1, -4

STEPS = 16
"""After as many steps what is free goes back to the system: kept memory falls apart where lengths differ, and grows."""


class KeepFreedMemory(TrainerCallback):
    """Has glibc keep what this process frees, and hand it out again.

    By default every large tensor is mapped anew and unmapped when it is freed, so that each step of training has the
    kernel clear the same gigabytes page by page. A C library without `mallopt` is left as it is.
    """

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Begin to keep it."""
        if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
            mallopt(MMAP_MAX, 0)
            mallopt(TRIM_THRESHOLD, -1)

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Hand back what is free now and then."""
        if state.global_step % STEPS == 0 and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
            trim(0)
