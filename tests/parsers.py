"""Parsers of documents that misbehave, in a module of their own, so that a child process can import them."""

import contextlib
import os
import signal
import time


def never_ends(name, path):
    """Stands for a parser in C, which no exception of Python's ends."""
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.1)


def crashes(name, path):
    """As the kernel ends a process that uses too much memory, or that writes where it must not."""
    os.kill(os.getpid(), signal.SIGKILL)


def recurses(name, path):
    """Fails by the depth of a document."""
    raise RecursionError


def fails(name, path):
    """Raises what no other process can be sent."""
    error = ValueError("a fault of its own")
    error.state = lambda: None
    raise error
