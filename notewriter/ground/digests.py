"""The SHA-256 of files, by which inputs, weights and shards are told apart."""

import hashlib
from pathlib import Path


def file_digest(path: str | Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
