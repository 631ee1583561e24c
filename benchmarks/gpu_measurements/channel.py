"""Standard output for results alone."""

import io
import os


def own_channel() -> io.TextIOBase:
    """What standard output was; from here on, what libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel
