"""File locks: only one command at a time writes into a folder."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from notewriter.ground.errors import UserError, writing

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(folder: Path, file: Path | None = None) -> Iterator[None]:
    """Create a folder and hold its lock, which is released even if this process is killed.

    The lock is the file `.lock` in the folder, which is left in place, or `file` if the folder does not exist yet,
    which is removed afterwards.

    Raises:
        UserError: another process holds the lock (names it), or the folder cannot be created or written.
    """
    path = file or folder / ".lock"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "ab+", buffering=0)  # noqa: SIM115 - stays open while the lock is held
    with lock:
        if not acquire(lock.fileno(), path):
            lock.seek(0)
            holder = lock.read().decode("utf-8", "replace").strip() or "another process"
            raise UserError(
                f"{folder}: {holder} is using this folder; wait until it has finished or choose another output_dir"
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
    """Lock an open file until it is closed.

    Returns False if another process holds the lock, or has just renamed or removed the file at `path`.
    """
    # Imported here, as most commands start without a lock.
    from filelock import lock_descriptor

    try:
        if not lock_descriptor(descriptor, blocking=False):
            return False
    except OSError as error:
        # Some network file systems do not support locks.
        logger.warning("%s: cannot be locked (%s); make sure that no other run writes into it", path, error.strerror)
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
