"""The folder of an index and its manifest.

`manifest.json` records the kind of the index, its number of passages and its source; `files.json` the size of every
file, which shows a copy that is not complete. The folder contains the passages themselves (`passages`), so that index
and corpus cannot diverge.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from notewriter.artifacts import run_record
from notewriter.ground import jsonl, typed
from notewriter.ground.errors import UserError
from notewriter.ground.folders import check_replaceable, new_folder

T = TypeVar("T")

MANIFEST, FILES = "manifest.json", "files.json"
REMEDY = "remove the folder and build the index again"


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


def existing_manifest(path: str | Path) -> dict[str, Any]:
    """The manifest of an index.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    manifest = read_manifest(path)
    if manifest is None:
        raise UserError(f"{path}: contains no index; build one with `notewriter index --index {path}`")
    return manifest


def checked_manifest(path: str | Path, schema: str, contents: type[T]) -> T:
    """The manifest of an index, which must have this schema; `contents` is the dataclass of its keys.

    Raises:
        UserError: the folder contains no such index, its manifest is damaged, or a file is missing or cut off.
    """
    manifest = read_manifest(path) or {}
    if manifest.get("schema") != schema:
        other = f", but a {manifest['schema']} one, of an earlier version" if "schema" in manifest else ""
        raise UserError(f"{path}: contains no {schema} index{other}; build it again with `notewriter index`")
    checked = typed.read(manifest, contents, f"{path}/{MANIFEST}", REMEDY)
    files = Path(path) / FILES
    # An earlier version did not write it.
    sizes = jsonl.read_object(files, dict[str, int], REMEDY) if files.exists() else {}
    for name, size in sizes.items():
        try:
            found = os.path.getsize(Path(path) / name)
        except OSError as error:
            raise UserError(f"{path}/{name}: cannot be read ({error.strerror}); {REMEDY}") from error
        if found != size:
            raise UserError(f"{path}/{name}: is damaged, it has {found:,} bytes and not {size:,}; {REMEDY}")
    return checked


def write_manifest(path: str | Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of an index."""
    jsonl.write_text(Path(path) / MANIFEST, [json.dumps(manifest, indent=2) + "\n"])


def index_fingerprint(path: str | Path) -> str | None:
    """A hash of an index's contents, or None if the folder has none; the device of its searches does not count.

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
        files = {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if _is_of_index(file)}
        jsonl.write_text(folder / FILES, [json.dumps(files, indent=2) + "\n"])
        write_manifest(folder, manifest)
    count: int = manifest["passages"]
    return count


def _is_of_index(file: Path) -> bool:
    """Whether a file does not change once the index is built: not the manifest, locks and the record of runs."""
    return file.is_file() and file.suffix != ".lock" and file.name not in (MANIFEST, FILES, run_record.NAME)
