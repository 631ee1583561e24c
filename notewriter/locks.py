"""One writer at a time: what a command writes into is locked while it runs."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import lock_descriptor

from notewriter.errors import UserError, writing

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(folder: Path, file: Path | None = None) -> Iterator[None]:
    """Make a folder and hold its lock, which ends with this process however it ends.

    The lock is the file `.lock` in the folder, which stays; or another `file` where the folder is yet to be made,
    which is removed afterwards.

    Raises:
        UserError: another process holds it; names that one. Or the folder cannot be made or written.
    """
    path = file or folder / ".lock"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "ab+", buffering=0)  # noqa: SIM115 - open as long as it is held
    with lock:
        if not acquire(lock.fileno(), path):
            lock.seek(0)
            holder = lock.read().decode("utf-8", "replace").strip() or "another process"
            raise UserError(
                f"{folder}: {holder} works in this folder; wait until it has ended, or choose another output_dir"
            )
        with writing(path):
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        try:
            yield
        finally:
            if file is not None:
                file.unlink(missing_ok=True)


def acquire(descriptor: int, path: Path) -> bool:
    """Lock the open file of a path until it is closed.

    False where another process holds it, or did until now and has renamed or removed the file.
    """
    try:
        if not lock_descriptor(descriptor, blocking=False):
            return False
    except OSError as error:
        # Some network file systems have no locks; a run there is no worse off than it was without.
        logger.warning("%s: cannot be locked (%s); see that no other run writes into it", path, error.strerror)
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
