"""JSON Lines: the one place where they are read and written."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from notewriter.errors import UserError, writing
from notewriter.locks import acquire
from notewriter.typecheck import misfit

UNENCODABLE = "backslashreplace"
"""Half of a surrogate pair, as cut data has it, is no UTF-8; what this writes instead is its JSON escape."""


def read(path: str | Path, *, journal: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield `(line_number, record)` for every line of a JSON Lines file; empty lines are passed over.

    Of a journal, a last line without its end is passed over too: a kill or a full disk has cut it.

    Raises:
        UserError: the file cannot be read, or a line is not a JSON object; names file and line.
    """
    try:
        file = open(path, encoding="utf-8")  # noqa: SIM115 - closed below; here only opening may fail
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    with file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip() and not (journal and not line.endswith("\n")):
                    yield number, _parse(line, f"{path}:{number}")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error


def read_object(path: str | Path, kind: Any, remedy: str) -> Any:
    """A file that is one JSON object of an annotated type, as `dict[str, str]` (`typecheck.misfit`).

    Raises:
        UserError: it cannot be read, is not JSON, or is something else; names the file, the key and the remedy.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON ({error}); {remedy}") from error
    if problem := misfit(value, kind, str(path)):
        raise UserError(f"{problem}; {remedy}")
    return value


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{place}: is not JSON ({error.msg} at column {error.colno}); mend or remove the line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: cannot be read ({error}); mend or remove the line") from error
    if not isinstance(record, dict):
        raise UserError(f"{place}: holds a {type(record).__name__}, not an object; write one JSON object a line")
    return record


def dumps(record: dict[str, Any]) -> str:
    """One record as one line, without the newline."""
    return json.dumps(record, ensure_ascii=False)


def write(path: str | Path, records: Iterable[dict[str, Any]]) -> None:
    """Write a whole file; it appears under its name only when it is complete."""
    write_text(path, (dumps(record) + "\n" for record in records))


def write_text(path: str | Path, parts: Iterable[str]) -> None:
    """Write a text file; it appears under its name only when it is complete.

    Raises:
        UserError: it cannot be written, or another process is writing it.
    """
    path = Path(path)
    if path.name in ("", ".."):
        raise UserError(f"{path}: is a folder; name the file to write")
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not emptied yet: it may be another process's.
        with open(partial, "a", encoding="utf-8", errors=UNENCODABLE) as file:
            if not acquire(file.fileno(), partial):
                raise UserError(f"{path}: another process is writing this file; wait until it has ended")
            try:
                file.truncate(0)
                file.writelines(parts)
                file.flush()
                # Network file systems tell of a full disk only now.
                os.fsync(file.fileno())
                os.replace(partial, path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise


class Journal:
    """An append-only JSON Lines file that survives a kill: what was appended is there afterwards.

    On opening, a last line that was cut by a kill or a full disk is removed, so that the next one starts clean.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered, so that what a full disk refuses is not tried once more on closing.
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - open as long as the journal is
            _drop_torn_line(self.path)

    def append(self, record: dict[str, Any]) -> None:
        """Write one line and hand it to the operating system.

        Raises:
            UserError: it cannot be written; the lines before it stay.
        """
        rest = memoryview(dumps(record).encode("utf-8", UNENCODABLE) + b"\n")
        with writing(self.path):
            start = self._file.seek(0, os.SEEK_END)
            try:
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError:
                # What fitted of the line; another one may be appended behind it.
                self._file.truncate(start)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with writing(self.path):
            self._file.close()


def _drop_torn_line(path: Path) -> None:
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                file.truncate(start + newline + 1)
                return
            position = start
        file.truncate(0)
