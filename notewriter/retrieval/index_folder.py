"""The folder of an index: its manifest, and checksums that detect damage.

`manifest.json` records the kind of the index, its number of passages and its source. The folder contains the passages
themselves (`passages`), so that index and corpus cannot diverge.

A corrupt index silently finds other passages or makes its library panic. Hashing an index takes about a second per
gigabyte, too long for every opening. So a file is hashed only if its size or modification time differs from the
recorded one, as after a copy, and recognised by size and time from then on.
"""

import hashlib
import json
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from notewriter.artifacts import run_record
from notewriter.ground import jsonl, typed
from notewriter.ground.errors import UserError
from notewriter.ground.folders import check_replaceable, new_folder

logger = logging.getLogger(__name__)

MANIFEST, CHECKSUMS = "manifest.json", "checksums.json"
REMEDY = "remove the folder and build the index again"

CHUNK = 1 << 22
"""Bytes read at a time."""


def read_manifest(path: str | Path) -> dict[str, Any] | None:
    """The manifest of an index, or None if the folder has none.

    Raises:
        UserError: the manifest cannot be read.
    """
    file = Path(path) / MANIFEST
    if not os.path.exists(file):
        return None
    manifest: dict[str, Any] = jsonl.read_object(file, dict[str, Any], REMEDY)
    return manifest


def checked_manifest(path: str | Path, schema: str, contents: Any) -> dict[str, Any]:
    """The manifest of an index that has to be of a schema; `contents` is the dataclass of its keys.

    Raises:
        UserError: the folder contains no such index, or its manifest is damaged.
    """
    manifest = read_manifest(path) or {}
    if manifest.get("schema") != schema:
        raise UserError(f"{path}: contains no {schema} index; build it again with `notewriter index`")
    typed.read(manifest, contents, f"{path}/{MANIFEST}", REMEDY)
    return manifest


def write_manifest(path: str | Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of an index."""
    jsonl.write_text(Path(path) / MANIFEST, [json.dumps(manifest, indent=2) + "\n"])


def index_fingerprint(path: str | Path) -> str | None:
    """A hash of what an index finds, or None if the folder has none; where it is searched does not count.

    Raises:
        UserError: as `read_manifest`.
    """
    manifest = read_manifest(path)
    if manifest is None:
        return None
    kept = {key: value for key, value in manifest.items() if key not in ("encoder", "query_device")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def write_index(path: str | Path, write: Callable[[Path], dict[str, Any]], *, resume: bool = False) -> int:
    """Let `write` fill a new folder and return its manifest; the folder replaces `path` when complete.

    An existing index stays usable until then. With `resume`, `write` finds in the folder what an interrupted build has
    left, and must check what of it can be reused. Returns the number of passages.

    Raises:
        UserError: `path` exists and is neither an index nor an empty folder, another process is building it, or it
            cannot be written.
    """
    path = Path(path)
    check_replaceable(path)
    if path.exists() and read_manifest(path) is None and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path}: exists and is not an index; choose another --index or remove it")
    with new_folder(path, resume=resume) as folder:
        manifest = write(folder)
        _save_checksums(folder, {file.name: _state(file) | {"crc32": _crc32(file)} for file in _files(folder)})
        write_manifest(folder, manifest)
    count: int = manifest["passages"]
    return count


def verify(folder: Path) -> None:
    """Check the files of an index.

    Raises:
        UserError: a file is missing or its contents have changed.
    """
    checksums = _read_checksums(folder)
    changed = False
    for name, record in checksums.items():
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
            _save_checksums(folder, checksums)
        except UserError as error:
            # A read-only index with changed times is hashed at every opening.
            logger.debug("%s: the modification times of its files cannot be recorded (%s)", folder, error)


def is_same(file: Path, other: Path) -> bool:
    """Whether another file has the contents that a file of an index had when it was built; it is read if need be."""
    try:
        if file.samefile(other):
            return True
        record = _read_checksums(file.parent).get(file.name, {})
        return record.get("size") == other.stat().st_size and record.get("crc32") == _crc32(other)
    except OSError:  # a file that cannot be read cannot be the same
        return False


def _files(folder: Path) -> list[Path]:
    # The manifest changes when the encoder moves, and the record of runs with every run.
    files = (file for file in folder.iterdir() if file.is_file() and file.suffix != ".lock")
    return sorted(file for file in files if file.name not in (CHECKSUMS, MANIFEST, run_record.NAME))


def _state(file: Path) -> dict[str, int]:
    status = os.stat(file)
    return {"size": status.st_size, "changed_ns": status.st_mtime_ns}


def _crc32(file: Path) -> int:
    checksum = 0
    with open(file, "rb") as stream:
        while chunk := stream.read(CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def _read_checksums(folder: Path) -> dict[str, dict[str, int]]:
    checksums: dict[str, dict[str, int]] = {}
    if (folder / CHECKSUMS).exists():
        checksums = jsonl.read_object(folder / CHECKSUMS, dict[str, dict[str, int]], REMEDY)
    return checksums


def _save_checksums(folder: Path, checksums: dict[str, dict[str, int]]) -> None:
    jsonl.write_text(folder / CHECKSUMS, [json.dumps(checksums, indent=2) + "\n"])
