"""Errors that users can fix themselves, including storage and path errors."""

import contextlib
import difflib
import errno
import io
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from notewriter.ground.terminal import Formatter, escape_controls

CLONE = Path(__file__).parents[2]
"""The folder of the package: the project's, or where a wheel was installed."""

_ROOM = "free some space and run the same command again; finished work is kept"
_FOLDER = "part of the path is a file, not a folder; choose another path"
REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "raise the limit on file sizes (ulimit -f) and run the same command again",
    errno.EIO: "free some space or check the disk, and run the same command again",
    errno.ESTALE: "check the network file system, and run the same command again",
    errno.EROFS: "choose a writable location",
    errno.EACCES: "change its permissions or choose another path",
    errno.EPERM: "change its permissions or choose another path",
    errno.EISDIR: "it is a folder, not a file; remove it or choose another path",
    errno.ENOTDIR: _FOLDER,
    errno.EEXIST: _FOLDER,
    errno.ENOENT: "check the path",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "its symbolic links form a loop; choose another path",
}
"""Storage and path errors, each with its remedy."""

WORDS = {
    errno.ENOSPC: ("No space left on device", "database or disk is full", "Not enough disk space"),
    errno.EDQUOT: ("Disk quota exceeded",),
    errno.EFBIG: ("File too large",),
    errno.EROFS: ("Read-only file system", "attempt to write a readonly database"),
    errno.EIO: ("Input/output error", "disk I/O error", "io::Error", "iostream error", "inline_container"),
}
"""Storage errors as worded by libraries with their own exceptions: SQLite, tantivy, safetensors, PyTorch, ..."""


class UserError(Exception):
    """An error the user can fix: one line that names the file, line or key, and the remedy."""


def meant(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The question whether the most similar of the known names was meant; `otherwise` if none is similar."""
    near = difflib.get_close_matches(name, [*known], n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def install(extra: str) -> str:
    """The remedy where a package of one of the project's extras is missing: the end of an error.

    In a clone it is the extra's name, elsewhere its packages, whatever the wheel came from.
    """
    if (CLONE / "pyproject.toml").is_file():
        return f"run pip install -e '.[{extra}]' in the project's folder (docs/install.md)"
    # Imported late: most commands have no use for it.
    import importlib.metadata

    lines = [line.partition(";") for line in importlib.metadata.requires("notewriter") or ()]
    needed = [f"'{package.strip()}'" for package, _, rest in lines if extra in re.findall(r"[\w-]+", rest)]
    return f"run {' '.join(['pip install', *needed])} (docs/install.md)"


def one_line(error: object) -> str:
    """The text of an error, or of anything else, without line breaks."""
    return " ".join(str(error).split())


def first_leaf(error: BaseException) -> BaseException:
    """The first error of a group, at any depth, such as `asyncio.TaskGroup` raises; any other error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def storage_error(error: BaseException, path: str | Path | None = None) -> UserError | None:
    """The storage or path error behind an exception, as a `UserError`; None for any other exception.

    `path` is the file being written; without it only `OSError` counts. A file named by the exception itself takes
    precedence unless it is a part or temporary form of `path`. A full disk without a file means standard output.
    """
    number = error.errno if isinstance(error, OSError) and error.errno in REMEDIES else None
    if number is None and path is not None:
        number = _storage_errno(error)
    if number is None:
        return None
    paths = [getattr(error, name, None) for name in ("filename2", "filename")]
    place = next((str(each) for each in paths if isinstance(each, str | Path)), None)
    if path is not None and (place is None or place.startswith(str(path))):
        place = str(path)
    if place is None and number not in WORDS:
        return None
    if number == errno.EIO and place is not None and free(Path(place)) < 1 << 20:
        # Libraries that memory-map files report a full disk as an I/O error.
        number = errno.ENOSPC
    reason = os.strerror(number)
    if number in (errno.ENOSPC, errno.EDQUOT) and place is not None:
        reason += f": {free(Path(place)):,} bytes are free"
    use = "created as a folder" if REMEDIES[number] == _FOLDER else "used" if path is None else "written"
    return UserError(f"{place or 'standard output'}: cannot be {use} ({reason}); {REMEDIES[number]}")


def _storage_errno(error: BaseException | None) -> int | None:
    """The errno of the storage error worded in an exception or in one of its causes."""
    while error is not None:
        for number, words in WORDS.items():
            if any(word in str(error) for word in words):
                return number
        error = error.__cause__ or error.__context__
    return None


def free(path: Path) -> int:
    """Free bytes on the file system of a path, which may not exist yet."""
    return shutil.disk_usage(next(parent for parent in path.absolute().parents if parent.is_dir())).free


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Report storage errors in the block as errors about `path`: full disk, read-only, not a file, ...

    Raises:
        UserError: in place of a storage error from any library; other exceptions pass unchanged.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if storage := storage_error(error, path):
            raise storage from error
        raise


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


def handle_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that its child processes are stopped first.

    Schedulers and `timeout` send it, the latter twice; what follows the first is ignored.
    """

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    # Worker processes that are forked later have nothing to stop.
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def run(main: Callable[[], None]) -> None:
    """Run a command's main function; a `UserError` becomes one line on standard error and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files and texts of models may have halves of characters; standard error writes them so by itself.
        sys.stdout.reconfigure(errors="backslashreplace")
    # INFO of other libraries, such as a line per request, would drown the progress bar.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # It has a handler of its own, and each of its lines would come twice.
    logging.getLogger("huggingface_hub").propagate = False
    # A module of it that is run as a program is called `__main__`.
    for name in ("notewriter", "__main__"):
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        main()
        # Flushed here because at interpreter exit a full disk behind standard output can no longer be reported.
        sys.stdout.flush()
    except UserError as error:
        # A path in the message may contain a line break.
        _end(f"error: {escape_controls(one_line(error))}", 2)
    except KeyboardInterrupt as interrupt:
        what, code = ("terminated", 143) if isinstance(interrupt, Terminated) else ("interrupted", 130)
        _end(f"{what}: finished work is kept; run the same command again to resume", code)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe.
        _discard_output()
        sys.exit(1)
    except RuntimeError as error:
        # Path.resolve before Python 3.13, where OSError would say so.
        if not str(error).startswith("Symlink loop"):
            raise
        _end(f"error: {escape_controls(one_line(error))}; {REMEDIES[errno.ELOOP]}", 2)
    except OSError as error:
        storage = storage_error(error)
        if storage is None:
            raise
        if error.filename is None:
            _discard_output()
        _end(f"error: {escape_controls(str(storage))}", 2)


def _end(line: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
    sys.exit(code)


def _discard_output() -> None:
    """Keep Python from flushing standard output again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
