"""Retrieval: a small protocol, and the folder format shared by all kinds of index.

An index is a folder whose `manifest.json` records its kind, number of passages and source. It contains the passages
themselves, so that index and corpus cannot diverge.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from notewriter.ground import jsonl
from notewriter.ground.config import choose
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.ground.folders import check_replaceable, new_folder
from notewriter.ground.records import Passage
from notewriter.ground.text import without_surrogates
from notewriter.ground.typecheck import misfit
from notewriter.retrieval import checksums

MANIFEST = "manifest.json"


Scope = Collection[str]
"""The ids or titles of the passages that a search is restricted to."""


class Retriever(Protocol):
    """What finds passages."""

    def search(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages, best first. `query` may be any text. Thread-safe."""
        ...


class Index(Protocol):
    """The interface of every index."""

    def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first. `query` may be any text. Thread-safe."""
        ...


@runtime_checkable
class BatchIndex(Index, Protocol):
    """An index that searches for several queries at once faster than one by one."""

    def search_all(self, queries: list[str], top_k: int, scope: Scope | None = None) -> list[list[Passage]]:
        """What `search` returns for each query."""
        ...


def open_index(path: str | Path) -> Index:
    """Open an index of any kind.

    Raises:
        UserError: the folder contains no index or one that this version cannot read.
    """
    # Imported here: each kind of index has its own libraries, and builds on this module.
    from notewriter.retrieval import bm25, dense

    manifest = read_manifest(path)
    if manifest is None:
        raise UserError(f"{path}: contains no index; build one with `notewriter index --index {path}`")
    kinds: dict[str, Callable[[str | Path], Index]] = {"bm25": bm25.BM25, "dense": dense.Dense}
    kind = choose(f"kind of index in {path}", str(manifest.get("kind")), kinds)
    checksums.verify(Path(path))
    return kind(path)


def read_manifest(path: str | Path) -> dict[str, Any] | None:
    """The manifest of an index, or None if the folder has none.

    Raises:
        UserError: the manifest cannot be read.
    """
    file = Path(path) / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read ({error}); remove the folder and build the index again") from error
    if problem := misfit(manifest, dict[str, Any], str(file)):
        raise UserError(f"{problem}; remove the folder and build the index again")
    return manifest


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


def corpus_fingerprint(dataset: str, path: str | Path) -> str:
    """The format and SHA-256 of a corpus file, to identify what an index is built from.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        return f"{dataset}:{file_digest(path)}"
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def checked(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Yield the passages with lone surrogates replaced.

    Raises:
        UserError: an id occurs twice, or there is no passage.
    """
    positions: dict[str, int] = {}
    for position, passage in enumerate(passages, start=1):
        if (first := positions.setdefault(passage.id, position)) != position:
            raise UserError(f"passages {first} and {position} have the same id {passage.id!r}; make ids unique")
        yield Passage(*map(without_surrogates, (passage.id, passage.title, passage.text)))
    if not positions:
        raise UserError("there are no passages to index; check the corpus")


def check_top_k(top_k: int) -> None:
    """Check that a search requests at least one passage.

    Raises:
        UserError: it does not.
    """
    if top_k < 1:
        raise UserError(f"top_k: {top_k} passages cannot be retrieved; request at least 1")


def write_index(path: str | Path, write: Callable[[Path], dict[str, Any]], *, resume: bool = False) -> dict[str, Any]:
    """Let `write` fill a new folder and return its manifest; the folder replaces `path` when complete.

    An existing index stays usable until then. With `resume`, `write` finds in the folder what an interrupted build
    has left, and must check what of it can be reused. Returns the manifest.

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
        checksums.write(folder)
        jsonl.write_text(folder / MANIFEST, [json.dumps(manifest, indent=2) + "\n"])
    return manifest
