"""Reading the files of a corpus: expanding folders, decompressing, places of records, and a limit of time."""

import bz2
import gzip
import json
import lzma
import signal
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from notewriter.corpora.source import Origin, Record
from notewriter.datasets.reading import get
from notewriter.ground.errors import UserError
from notewriter.ground.text import without_surrogates

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""Decompression by file ending."""

MAX_SECONDS = 300.0
"""Time to parse a document, and again to split it; some damaged PDF files keep the parser busy for hours."""


def expand(paths: Sequence[Path], *patterns: str) -> Iterator[tuple[str, Path]]:
    """The files at some paths with their names; of a folder those that match one of the patterns, sorted.

    Raises:
        UserError: a path does not exist, or a folder contains no such file.
    """
    for path in paths:
        if path.is_dir():
            files = sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})
            if not files:
                raise UserError(f"{path}: contains no {' or '.join(patterns)}; check the path and --source")
            yield from ((str(file), file) for file in files)
        elif path.is_file():
            yield str(path), path
        else:
            raise UserError(f"{path}: is no file or folder; check the path")


def lines(name: str, path: Path) -> Iterator[Record]:
    """The non-blank lines of a text file, which may be compressed. Bytes that are not UTF-8 become surrogates.

    Raises:
        UserError: the file cannot be read, or is compressed and truncated or damaged.
    """
    opener: Any = OPENERS.get(path.suffix, open)
    try:
        file: IO[str]
        with opener(path, "rt", encoding="utf-8", errors="surrogateescape") as file:
            for number, line in enumerate(file, start=1):
                if not line.isspace():
                    yield f"{name}:{number}", line
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise _damaged(name, error) from error
    except OSError as error:
        if error.errno is None:
            # bz2's only error.
            raise _damaged(name, error) from error
        raise UserError(f"{name}: cannot be read ({error.strerror}); check the path") from error


def _damaged(name: str, error: Exception) -> UserError:
    return UserError(f"{name}: is truncated or damaged ({error}); download it again")


def json_object(place: str, line: str) -> dict[str, Any]:
    """The JSON object in a line of `lines`.

    Raises:
        UserError: it is none, or is not UTF-8.
    """
    if without_surrogates(line) != line:
        raise UserError(f"{place}: is not UTF-8")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: is not JSON ({error})") from error
    if not isinstance(record, dict):
        raise UserError(f"{place}: is a {type(record).__name__}, not an object")
    return record


def identifier(record: dict[str, Any], key: str, place: str) -> str:
    """An id that may be a number in the file."""
    return get(record, key, str, place) if not isinstance(record.get(key), int) else str(record[key])


def origin(record: dict[str, Any]) -> Origin:
    """The address of a record's document, if it has one."""
    return Origin(url=record["url"]) if isinstance(record.get("url"), str) else Origin()


def too_slow(name: str) -> UserError:
    """The error about a document that takes more than `MAX_SECONDS`."""
    return UserError(f"{name}: takes more than {MAX_SECONDS:g} seconds; split it or convert it to text")


class _TooSlow(BaseException):
    """Not an `Exception`, which parsers catch and go on."""


@contextmanager
def time_limit(name: str) -> Iterator[None]:
    """End the block after `MAX_SECONDS`; outside the main thread, where signals cannot, never.

    Raises:
        UserError: it took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    # Again each second: the first may arrive in a destructor, whose exceptions Python ignores.
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS, 1)
    try:
        yield
    except _TooSlow as error:
        raise too_slow(name) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
