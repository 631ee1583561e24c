"""The file of results: JSON lines, a header and then a record for each measurement."""

import json
import os
import sys
from pathlib import Path
from typing import Any

Record = dict[str, Any]
"""A line of the file."""


def read(file: Path) -> tuple[list[Record], dict[str, Record]]:
    """The headers of a results file and its records by name, the last of each; a partial line is left out."""
    headers, records = [], {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "header" in record:
            headers.append(record["header"])
        else:
            records[record["name"]] = record
    return headers, records


class Results:
    """A results file that is open for more."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.headers, self.records = read(file)
        self.stream = open(file, "a", encoding="utf-8")  # noqa: SIM115
        if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
            self.stream.write("\n")

    def finished(self, name: str) -> bool:
        """Whether a measurement has a result; being out of memory is one, a failure is not."""
        return self.records.get(name, {}).get("outcome") in {"measured", "out of memory"}

    def add_header(self, header: Record) -> None:
        """Add the machine, once; a file belongs to one machine and one set of versions.

        Raises:
            SystemExit: the file's results are another machine's.
        """
        for known in self.headers[:1]:
            for part in ("device", "versions"):
                if known[part] != header[part]:
                    sys.exit(f"{self.stream.name}: measured with {known[part]}, not {header[part]}; name another file")
        if not self.headers:
            self.headers.append(header)
            self._write({"header": header})

    def add(self, record: Record) -> None:
        """Add a measurement's record."""
        self.records[record["name"]] = record
        self._write(record)

    def _write(self, record: Record) -> None:
        self.stream.write(json.dumps(record) + "\n")
        self.stream.flush()
        os.fsync(self.stream.fileno())
