"""SHA-256: of files, by which inputs, weights and shards are told apart, and of ids, by which some are drawn."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def file_digest(path: str | Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def drawn(ids: Iterable[str], number: int) -> list[str]:
    """The `number` ids with the smallest SHA-256: a choice that nobody made."""
    return sorted(ids, key=lambda id: hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest())[:number]
