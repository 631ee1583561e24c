"""One writer a folder: what a run writes into is locked while it runs."""

import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from notewriter.errors import UserError

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, which ends with this process however it ends.

    Raises:
        UserError: another process holds it; names that one.
    """
    with open(folder / ".lock", "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(
                f"{folder}: {holder} works in this folder; wait until it has ended, or choose another output_dir"
            ) from None
        except OSError as error:
            # Some network file systems have no locks; a run there is no worse off than it was without.
            logger.warning("%s: cannot be locked (%s); see that no other run writes into it", folder, error.strerror)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
