"""Errors that a user can put right, those of disks and paths among them."""

import contextlib
import errno
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from notewriter import terminal

_ROOM = "make room there and run the same command again, which keeps what is finished"
_FOLDER = "a file stands where a folder belongs; choose another path"
REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "raise the limit on file sizes (ulimit -f) and run the same command again",
    errno.EIO: "make room there or check the disk, and run the same command again",
    errno.ESTALE: "check the network file system, and run the same command again",
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "change its permissions, or choose another path",
    errno.EPERM: "change its permissions, or choose another path",
    errno.EISDIR: "a folder stands where a file belongs; remove it, or choose another path",
    errno.ENOTDIR: _FOLDER,
    errno.EEXIST: _FOLDER,
    errno.ENOENT: "check the path",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "its symbolic links lead in a circle; choose another path",
}
"""Faults of disks and paths, with what a user can do about each."""

WORDS = {
    errno.ENOSPC: ("No space left on device", "database or disk is full", "Not enough disk space"),
    errno.EDQUOT: ("Disk quota exceeded",),
    errno.EFBIG: ("File too large",),
    errno.EROFS: ("Read-only file system", "attempt to write a readonly database"),
    errno.EIO: ("Input/output error", "disk I/O error", "io::Error", "iostream error", "inline_container"),
}
"""Faults of disks in the words of libraries with errors of their own: SQLite, tantivy, safetensors, PyTorch, ..."""


class UserError(Exception):
    """Something the user can put right: one line that names the file, line or key, and the remedy."""


def storage_error(error: BaseException, path: str | Path | None = None) -> UserError | None:
    """The fault of a disk or a path behind an error, as the user is told of it; None where it is another error.

    `path` is what was being written; without it only an `OSError` is looked at. A file that the error itself names
    goes before, unless it is a part or a temporary form of `path`; a full disk behind no file is standard output's.
    """
    number = error.errno if isinstance(error, OSError) and error.errno in REMEDIES else None
    if number is None and path is not None:
        number = _fault_of_disk(error)
    if number is None:
        return None
    named = [getattr(error, name, None) for name in ("filename2", "filename")]
    place = next((str(name) for name in named if isinstance(name, str | Path)), None)
    if path is not None and (place is None or place.startswith(str(path))):
        place = str(path)
    if place is None and number not in WORDS:
        return None
    if number == errno.EIO and place is not None and _free(Path(place)) < 1 << 20:
        # Libraries that map files into memory say no more of a full disk.
        number = errno.ENOSPC
    reason = os.strerror(number)
    if number in (errno.ENOSPC, errno.EDQUOT) and place is not None:
        reason += f": it needs more than the {_free(Path(place)):,} bytes that are free"
    use = "made a folder" if REMEDIES[number] == _FOLDER else "used" if path is None else "written"
    return UserError(f"{place or 'standard output'}: cannot be {use} ({reason}); {REMEDIES[number]}")


def _fault_of_disk(error: BaseException | None) -> int | None:
    """Which fault of a disk an error, or one that led to it, tells of in words."""
    while error is not None:
        for number, words in WORDS.items():
            if any(word in str(error) for word in words):
                return number
        error = error.__cause__ or error.__context__
    return None


def _free(path: Path) -> int:
    """The bytes that are free on the file system of a path."""
    return shutil.disk_usage(next(parent for parent in path.absolute().parents if parent.is_dir())).free


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Name `path` where the block cannot write it: its disk is full or read-only, or something else stands there.

    Raises:
        UserError: in place of such an error, whichever library it comes from; all others pass.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if told := storage_error(error, path):
            raise told from error
        raise


def run(main: Callable[[], None]) -> None:
    """Run a command's main function; what a user can put right becomes one line on standard error and exit code 2."""
    # Other libraries' idea of information, such as a line a request, would hide the progress bar.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(terminal.Formatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for package in ("notewriter", "data_construction", "eval", "training"):
        logging.getLogger(package).setLevel(logging.INFO)
    try:
        main()
        # Here, and not when Python ends, a full disk behind standard output can still be told.
        sys.stdout.flush()
    except UserError as error:
        # What it names, as a path, may contain a line break.
        _end(f"error: {terminal.harmless(' '.join(str(error).split()))}", 2)
    except KeyboardInterrupt:
        _end("interrupted: what was finished is kept; the same command goes on from there", 130)
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has had enough.
        _discard_output()
        sys.exit(1)
    except OSError as error:
        told = storage_error(error)
        if told is None:
            raise
        if error.filename is None:
            _discard_output()
        _end(f"error: {terminal.harmless(str(told))}", 2)


def _end(line: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
    sys.exit(code)


def _discard_output() -> None:
    """Keep Python from writing to standard output once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
