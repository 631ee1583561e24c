"""A child process for parsers: a document that hangs or crashes one is lost alone."""

import atexit
import contextlib
import ctypes
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from notewriter.corpora import reading
from notewriter.ground.errors import UserError, one_line

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1

_SERVE = "import sys; sys.path[:] = {path!r}; from notewriter.corpora.child import serve; serve({number})"

_children: list[tuple[Connection, subprocess.Popen[bytes]]] = []
"""The child process with its connection, if there is one."""


def in_child(name: str, function: Callable[..., T], *arguments: Any) -> T:
    """The result of a function in a child process, which is killed after `reading.MAX_SECONDS`.

    The child is kept for the next call. It is a process, since a parser in C can be ended in no other way.

    Args:
        name: the document, for errors.
        function: a function of a module, not a local one, since it goes to the child by its name.
        arguments: its arguments.

    Raises:
        UserError: it took longer, or the child has crashed.
        Exception: what the function raised.
    """
    if not _children:
        _children.append(_start())
    connection, process = _children[0]
    try:
        connection.send((function, arguments))
        if not connection.poll(reading.MAX_SECONDS):
            raise reading.too_slow(name)
        succeeded, result = connection.recv()
    except (EOFError, ConnectionError) as error:
        code = process.wait()
        _end()
        cause = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        raise UserError(f"{name}: its parser has crashed ({cause}); convert it to text") from error
    except BaseException:
        # The child may still be at work, and its reply would be taken for that of the next call.
        _end()
        raise
    if not succeeded:
        raise result
    return result  # type: ignore[no-any-return]


def _start() -> tuple[Connection, subprocess.Popen[bytes]]:
    ours, theirs = Pipe()
    with theirs:
        number = theirs.fileno()
        # Without -P a file of the working directory could stand for a module.
        command = [sys.executable, "-P", "-c", _SERVE.format(path=sys.path, number=number)]
        return ours, subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[number])


@atexit.register
def _end() -> None:
    """Kill the child process, if there is one."""
    while _children:
        connection, process = _children.pop()
        connection.close()
        process.kill()
        process.wait()


def serve(number: int) -> None:
    """The work of the child process: answer the calls through a file descriptor until it is closed."""
    # What a terminal or a scheduler sends to the whole group is for the parent, which kills this process, as the kernel
    # does where the parent is killed.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connection = Connection(number)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            function, arguments = connection.recv()
            try:
                answer = True, function(*arguments)
            except Exception as error:
                answer = False, error
            try:
                content = pickle.dumps(answer)
            except Exception:
                content = pickle.dumps((False, RuntimeError(one_line(repr(answer[1]))[:500])))
            connection.send_bytes(content)
