"""Finding passages: one small protocol, and the folder format that every kind of index shares.

An index is a folder with a `manifest.json` that tells its kind, its number of passages and the source it was
built from. It holds the passages themselves, so that it and its corpus cannot drift apart.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from notewriter import jsonl
from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.folders import check_replaceable, new_folder
from notewriter.records import Passage
from notewriter.retrieval import checksums
from notewriter.text import without_surrogates
from notewriter.typecheck import misfit

MANIFEST = "manifest.json"


class Retriever(Protocol):
    """What every index can do."""

    def search(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages, best first. `query` may be any text; safe to call from several threads."""
        ...


def open_index(path: str | Path | Sequence[str | Path]) -> Retriever:
    """Open an index of any kind, or several that are searched as one (`fusion.Sources`).

    Raises:
        UserError: a folder holds no index, or one that this version cannot read, or it is named twice.
    """
    # Here, since a kind of index brings a library that the others do not need, and builds on this module.
    from notewriter.retrieval import bm25, dense, fusion

    if not isinstance(path, str | Path):
        folders = [Path(each).resolve() for each in path]
        if twice := next((each for each in path if folders.count(Path(each).resolve()) > 1), None):
            raise UserError(f"{twice}: this index is named twice; name each once")
        retrievers = [open_index(each) for each in path]
        corpora = [str((read_manifest(each) or {}).get("source", "")) for each in path]
        return retrievers[0] if len(retrievers) == 1 else fusion.Sources(retrievers, corpora)

    manifest = read_manifest(path)
    if manifest is None:
        raise UserError(f"{path}: holds no index; build one with `notewriter index --index {path}`")
    kinds = {"bm25": bm25.BM25, "dense": dense.Dense}
    kind = choose(f"kind of index in {path}", str(manifest.get("kind")), kinds)
    checksums.verify(Path(path))
    retriever: Retriever = kind(path)
    return retriever


def read_manifest(path: str | Path) -> dict[str, Any] | None:
    """The manifest of an index, or None where the folder has none.

    Raises:
        UserError: there is a manifest that cannot be read.
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


def checked(passages: Iterable[Passage]) -> Iterator[Passage]:
    """The passages as they come, each with a text that UTF-8 can hold.

    Raises:
        UserError: an id that occurs twice, or no passage at all.
    """
    positions: dict[str, int] = {}
    for position, passage in enumerate(passages, start=1):
        if (first := positions.setdefault(passage.id, position)) != position:
            raise UserError(f"passages {first} and {position} have the same id {passage.id!r}; make ids unique")
        yield Passage(*map(without_surrogates, (passage.id, passage.title, passage.text)))
    if not positions:
        raise UserError("there is no passage to index; check the corpus")


def check_top_k(top_k: int) -> None:
    """See that a search asks for a passage at least.

    Raises:
        UserError: it does not.
    """
    if top_k < 1:
        raise UserError(f"top_k: {top_k} passages cannot be retrieved; ask for at least 1")


def write_index(path: str | Path, write: Callable[[Path], dict[str, Any]], *, resume: bool = False) -> dict[str, Any]:
    """Let `write` fill a new folder and return its manifest; the folder appears under its name when complete.

    An index that was there before stays usable until then. With `resume`, `write` finds in the folder what one that
    was killed or failed has written, and must see for itself what that is worth. Returns the manifest.

    Raises:
        UserError: `path` is there and is neither an index nor an empty folder, another process builds one there, or
            it cannot be written.
    """
    path = Path(path)
    check_replaceable(path)
    if path.exists() and read_manifest(path) is None and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path}: is there already and is no index; choose another --index or remove it")
    with new_folder(path, resume=resume) as folder:
        manifest = write(folder)
        checksums.write(folder)
        jsonl.write_text(folder / MANIFEST, [json.dumps(manifest, indent=2) + "\n"])
    return manifest
