"""JSON Lines: the one place where they are read and written."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from notewriter.errors import UserError

UNENCODABLE = "backslashreplace"
"""Half of a surrogate pair, as cut data has it, is no UTF-8; what this writes instead is its JSON escape."""


def read(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield `(line_number, record)` for every line of a JSON Lines file; empty lines are passed over.

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
                if line.strip():
                    yield number, _parse(line, f"{path}:{number}")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error


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
    """Write a text file; it appears under its name only when it is complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "w", encoding="utf-8", errors=UNENCODABLE) as file:
        file.writelines(parts)
    os.replace(partial, path)


class Journal:
    """An append-only JSON Lines file that survives a kill: what was appended is there afterwards.

    On opening, a last line that was cut by a kill is removed, so that the next one starts clean.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "ab")  # noqa: SIM115 - open as long as the journal is
        _drop_torn_line(self.path)

    def append(self, record: dict[str, Any]) -> None:
        """Write one line and hand it to the operating system."""
        self._file.write(dumps(record).encode("utf-8", UNENCODABLE) + b"\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
