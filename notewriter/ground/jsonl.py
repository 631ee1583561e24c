"""Reading and writing JSON Lines, and reading lists of JSON."""

import errno
import gzip
import itertools
import json
import mmap
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TextIO, cast

from notewriter.ground import typed
from notewriter.ground.errors import UserError, writing
from notewriter.ground.locks import acquire

UNENCODABLE = "backslashreplace"
"""Error handler for lone surrogates, which UTF-8 cannot encode: they are written as JSON escapes."""


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys differ.

    Raises:
        ValueError: a key is in it twice, of which Python's own reader keeps the last.
    """
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(
            f"an object has the key {typed.shown(twice)} twice, the last time {typed.shown(record[twice])}"
        )
    return record


DECODER = json.JSONDecoder(object_pairs_hook=_keys_once)
"""Reads JSON that others have written."""


def open_text(path: str | Path, newline: str | None = None) -> TextIO:
    """A text file, open for reading without a byte order mark; it may be compressed with gzip.

    `newline` is that of Python's `open`: an empty text leaves line breaks as they are.

    Raises:
        OSError: it cannot be read, or is a pipe or a device.
    """
    if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
    with open(path, "rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    opened = gzip.open if is_gzip else open
    return cast(TextIO, opened(path, "rt", encoding="utf-8-sig", newline=newline))


def read(path: str | Path, *, journal: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield `(line_number, record)` for every non-empty line of a JSON Lines file, which may be compressed (`.gz`).

    In a journal a last line that was cut is ignored too (`is_cut`).

    Raises:
        UserError: the file cannot be read, or a line is not a JSON object; names file and line.
    """
    for number, line in lines(path):
        if line.strip() and not (journal and is_cut(line)):
            yield number, parse(line, f"{path}:{number}")


def records(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `(name, record)` for every object of a file that is JSON Lines or one JSON list; either may be `.gz`.

    The name is `line 5`, or in a list `item 5`, from 1. Of a list all of the file is in memory.

    Raises:
        UserError: as `read`, or an item of the list is not an object.
    """
    numbered = lines(path)
    first = next(((number, line) for number, line in numbered if line.strip()), None)
    if first is not None and first[1].strip() == "{":
        raise UserError(
            f"{path}:{first[0]}: begins an object of several lines; write one JSON object per line, or a list"
        )
    if first is None or not first[1].lstrip().startswith("["):
        yield from ((f"line {number}", record) for number, record in read(path))
        return
    text = "".join(line for _, line in itertools.chain([first], numbered))
    items = _value(text, lambda line: f"{path}:{first[0] - 1 + line}")
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            kind = type(item).__name__
            raise UserError(f"{path}: item {number} of its list is a {kind}, not an object; fix or remove it")
        yield f"item {number}", item


def lines(path: str | Path, newline: str | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, from 1 (`open_text`).

    Raises:
        UserError: the file cannot be read.
    """
    try:
        file = open_text(path, newline)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    with file:
        try:
            yield from enumerate(file, start=1)
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{path}: is not a whole gzip file ({error}); copy or download it again") from error


def read_object(path: str | Path, kind: Any, remedy: str) -> Any:
    """Read a file that contains one JSON value of an annotated type such as `dict[str, str]` (`typed.read`).

    Raises:
        UserError: it cannot be read, is not JSON or has another type; names the file, the key and the remedy.
    """
    try:
        with open_text(path) as file:
            value = json.load(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON ({error}); {remedy}") from error
    return typed.read(value, kind, str(path), remedy)


def _value(text: str, place: Callable[[int], str]) -> Any:
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        at = place(error.lineno)
        raise UserError(f"{at}: is not JSON ({error.msg} at column {error.colno}); fix or remove the line") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place(1)}: cannot be read ({error}); fix or remove the line") from error


def parse(line: str, place: str) -> dict[str, Any]:
    """The JSON object in a line.

    Raises:
        UserError: it is none; names the place.
    """
    record = _value(line, lambda _: place)
    if not isinstance(record, dict):
        raise UserError(f"{place}: is a {type(record).__name__}, not an object; write one JSON object per line")
    return record


def is_cut(line: str | bytes) -> bool:
    """Whether an interrupted write left a line of a journal: without a newline, and no whole object.

    An editor may leave out the newline after the last line.
    """
    if line[-1:] in ("\n", b"\n"):
        return False
    try:
        return not isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return True


def dumps(record: dict[str, Any]) -> str:
    """A record as one line, without the newline."""
    return json.dumps(record, ensure_ascii=False)


def write(path: str | Path, records: Iterable[dict[str, Any]]) -> None:
    """Write a whole file atomically: it appears under its name only when complete."""
    write_text(path, (dumps(record) + "\n" for record in records))


def write_text(path: str | Path, parts: Iterable[str]) -> None:
    """Write a text file atomically: it appears under its name only when complete.

    Raises:
        UserError: it cannot be written, or another process is writing it.
    """
    path = Path(path)
    if path.name in ("", ".."):
        raise UserError(f"{path}: is a folder; give the name of a file")
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not truncated yet: it may belong to another process.
        with open(partial, "a", encoding="utf-8", errors=UNENCODABLE) as file:
            if not acquire(file.fileno(), partial):
                raise UserError(f"{path}: another process is writing this file; wait until it has finished")
            try:
                file.truncate(0)
                file.writelines(parts)
                file.flush()
                # Network file systems report a full disk only here.
                os.fsync(file.fileno())
                os.replace(partial, path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise


class Journal:
    """An append-only JSON Lines file that survives a kill: every appended record is kept.

    Opening it removes a last line that a kill or a full disk has cut, and adds a missing newline to a whole one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered, so that closing does not retry a write that a full disk has refused.
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - stays open with the journal
            _mend_last_line(self.path)

    def append(self, record: dict[str, Any]) -> None:
        """Write one line, unbuffered.

        Raises:
            UserError: it cannot be written; earlier lines are unaffected.
        """
        rest = memoryview(dumps(record).encode("utf-8", UNENCODABLE) + b"\n")
        with writing(self.path):
            start = self._file.seek(0, os.SEEK_END)
            try:
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError:
                # Remove the part of the line that fitted.
                self._file.truncate(start)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with writing(self.path):
            self._file.close()


def _mend_last_line(path: Path) -> None:
    with open(path, "rb+") as file:
        # Nothing that is empty can be mapped.
        if file.seek(0, os.SEEK_END):
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                end = content.rfind(b"\n") + 1
                last = content[end:]
            if is_cut(last):
                file.truncate(end)
            else:
                file.write(b"\n")
