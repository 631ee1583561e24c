"""Commands as processes forked from one that has imported the libraries, which takes longer than most of them do.

    with warm("torch", "trl", environment=os.environ) as program:
        subprocess.run([*program, "training/train_dpo.py", ...])
        subprocess.run([*program, "notewriter", "evaluate", ...])

What comes after `program` is a Python script or the command `notewriter`. It starts a small process that hands its
command line, folder, environment, input and outputs to the server, which forks: the fork is the command. The small
process passes signals on to it and ends as it does, and the fork does not outlive it.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
READ_AT_IMPORT = ("HF_", "TRANSFORMERS_", "DS_", "OMP_")
"""How the names of variables begin that libraries read once. A command must have those of the server."""

CHANGED = "HF_DATASETS_CACHE"
"""The one that a command may have otherwise: where TRL keeps the reference's log-probs."""


@contextlib.contextmanager
def warm(*modules: str, environment: Mapping[str, str] = os.environ) -> Iterator[list[str]]:
    """The beginning of the command lines of processes that find modules imported, under these variables.

    Raises:
        AssertionError: the server ended before it could be asked: an import failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/socket"
        command = [sys.executable, __file__, "serve", address, *modules]
        server = subprocess.Popen(command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert server.stdin is not None and server.stdout is not None
        try:
            assert server.stdout.readline() == b"ready\n", f"the server of forks ended with {server.wait()}"
            # Without site-packages it starts in a moment.
            yield program_of(address)
        finally:
            # The end of its input ends it, as the end of this process would.
            server.stdin.close()
            server.stdout.close()
            server.wait(30)


def program_of(address: str) -> list[str]:
    return [sys.executable, "-ISs", __file__, "ask", address]


def ask(address: str, argv: list[str]) -> int:
    """Have a command done by the server; returns its exit code, which is minus the signal that ended it."""
    # One that comes before the fork is known waits until it is.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        request = json.dumps({"argv": argv, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
        with tempfile.TemporaryFile() as file:
            # An environment may be longer than a packet.
            file.write(request)
            file.flush()
            socket.send_fds(server, [b"-"], [0, 1, 2, file.fileno()])
            pid = int(server.recv(64))
        for number in FORWARDED:
            signal.signal(number, lambda received, _: os.kill(pid, received))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        return int(server.recv(64))


def serve(address: str, modules: list[str]) -> dict[str, Any]:
    """Fork for each command that is asked for; returns only in the forks, with the command."""
    for name in modules:
        importlib.import_module(name)
    # A fork has no other thread than this one, and would wait for their locks.
    assert threading.active_count() == 1, threading.enumerate()
    # Or each fork would copy the pages of all that was imported as it counts references in them.
    gc.freeze()
    asked: dict[socket.socket, int] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, selectors.DefaultSelector() as ready:
        listener.bind(address)
        listener.listen(64)
        ended, told = os.pipe()
        os.set_blocking(told, False)
        os.set_blocking(ended, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(told)
        for each in (listener, ended, sys.stdin.fileno()):
            ready.register(each, selectors.EVENT_READ)
        os.write(1, b"ready\n")
        while True:
            for key, _ in ready.select():
                if key.fd == sys.stdin.fileno():
                    for pid in asked.values():
                        os.kill(pid, signal.SIGKILL)
                    os._exit(0)
                elif key.fd == ended:
                    os.read(ended, 4096)
                    _reap(asked, ready)
                elif key.fileobj is listener:
                    connection, _ = listener.accept()
                    _, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
                    if pid := os.fork():
                        for descriptor in descriptors:
                            os.close(descriptor)
                        connection.send(str(pid).encode())
                        asked[connection] = pid
                        ready.register(connection, selectors.EVENT_READ)
                        continue
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for each in (connection, *asked):
                        each.close()
                    os.close(ended)
                    os.close(told)
                    return _taken(descriptors)
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in asked:
                    # Who asked has ended, killed perhaps, and so does the fork; `_reap` forgets it.
                    os.kill(asked[key.fileobj], signal.SIGKILL)
                    ready.unregister(key.fileobj)


def _reap(asked: dict[socket.socket, int], ready: selectors.BaseSelector) -> None:
    """Tell of each fork that has ended how."""
    for connection, pid in list(asked.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            del asked[connection]
            with contextlib.suppress(OSError, KeyError):
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                ready.unregister(connection)
            connection.close()


def _taken(descriptors: list[int]) -> dict[str, Any]:
    """The command of a fork, which gets its input, outputs, folder and environment."""
    *streams, file = descriptors
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, "rb") as opened:
        request: dict[str, Any] = json.load(opened)
    for descriptor in streams:
        os.close(descriptor)
    own: dict[str, str] = request["environment"]
    differs = {name for name in own.keys() | os.environ.keys() if own.get(name) != os.environ.get(name)}
    # Standard error is the command's by now.
    read = {name for name in differs if name.startswith(READ_AT_IMPORT)} - {CHANGED}
    assert not read, f"the server of forks was started with other values of {read}"
    os.environ.clear()
    os.environ.update(own)
    if CHANGED in own and "datasets" in sys.modules:
        sys.modules["datasets"].config.HF_DATASETS_CACHE = Path(own[CHANGED])
    os.chdir(request["folder"])
    return request


def main() -> None:
    todo, address, *rest = sys.argv[1:]
    if todo == "ask":
        code = ask(address, rest)
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        sys.exit(code)
    script, *arguments = serve(address, rest)["argv"]
    sys.argv = [script, *arguments]
    # From here on a fork is what Python would be that was started with the script, to its exit.
    if script == "notewriter":
        importlib.import_module("notewriter.cli").main()
    else:
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
