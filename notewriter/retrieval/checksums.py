"""Checksums that detect damaged indexes.

A corrupt index silently finds other passages or makes its library panic. Hashing an index takes about a second per
gigabyte, too long for every opening. So a file is hashed only if its size or modification time differs from the
recorded one, as after a copy, and recognised by size and time from then on.
"""

import json
import logging
import os
import zlib
from pathlib import Path
from typing import Any

from notewriter.artifacts import run_record
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

logger = logging.getLogger(__name__)

FILE = "checksums.json"
CHUNK = 1 << 22
"""Bytes read at a time."""

REMEDY = "remove the folder and build the index again"


def write(folder: Path) -> None:
    """Record checksum, size and modification time of every file in a folder."""
    _save(folder, {file.name: _state(file) | {"crc32": _crc32(file)} for file in _files(folder)})


def verify(folder: Path) -> None:
    """Check the files of an index; indexes of versions before 0.2 have no checksums and pass.

    Raises:
        UserError: a file is missing or its contents have changed.
    """
    if not (folder / FILE).exists():
        return
    known = jsonl.read_object(folder / FILE, dict[str, dict[str, int]], REMEDY)
    changed = False
    for name, record in known.items():
        file = folder / name
        try:
            state = _state(file)
            if state.items() <= record.items():
                continue
            if state["size"] != record.get("size") or _crc32(file) != record.get("crc32"):
                raise UserError(f"{file}: is damaged, its contents have changed since it was built; {REMEDY}")
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror}); {REMEDY}") from error
        record |= state
        changed = True
    if changed:
        try:
            _save(folder, known)
        except UserError as error:
            # A read-only index with changed times is hashed at every opening.
            logger.debug("%s: the modification times of its files cannot be recorded (%s)", folder, error)


def is_same(file: Path, other: Path) -> bool:
    """Whether another file has the contents that a file of an index had when it was built; it is read if need be."""
    try:
        if file.samefile(other):
            return True
        if not (file.parent / FILE).exists():
            return False
        known = jsonl.read_object(file.parent / FILE, dict[str, dict[str, int]], REMEDY)
        record: dict[str, int] = known.get(file.name, {})
        return record.get("size") == other.stat().st_size and record.get("crc32") == _crc32(other)
    except OSError:  # what cannot be read cannot be the same
        return False


def _files(folder: Path) -> list[Path]:
    # The manifest changes legitimately when the encoder moves, and the record when passages are added.
    files = (file for file in folder.iterdir() if file.is_file() and file.suffix != ".lock")
    return sorted(file for file in files if file.name not in (FILE, "manifest.json", run_record.NAME))


def _state(file: Path) -> dict[str, int]:
    status = os.stat(file)
    return {"size": status.st_size, "changed_ns": status.st_mtime_ns}


def _crc32(file: Path) -> int:
    checksum = 0
    with open(file, "rb") as stream:
        while chunk := stream.read(CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def _save(folder: Path, known: dict[str, Any]) -> None:
    jsonl.write_text(folder / FILE, [json.dumps(known, indent=2) + "\n"])
