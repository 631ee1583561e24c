"""SHA-256: of files, to tell inputs, weights and shards apart, and of ids, to draw some of them."""

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
    """The `number` ids with the smallest SHA-256: a choice without a chooser."""
    return sorted(ids, key=lambda id: hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest())[:number]
