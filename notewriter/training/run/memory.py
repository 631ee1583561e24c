"""How the C library hands out the memory of a run on the CPU."""

import ctypes

# glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Have glibc keep what this process frees, and hand it out again.

    By default every large tensor is mapped anew and unmapped when it is freed, so that each step of training has the
    kernel clear the same gigabytes page by page. A C library without `mallopt` is left as it is.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, -1)
