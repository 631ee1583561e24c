"""The response cache: every model reply on disk, so that an interrupted run repeats no finished call."""

import json
import logging
import random
import sqlite3
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from notewriter.ground.errors import UserError, storage_error, writing
from notewriter.ground.records import Completion

logger = logging.getLogger(__name__)

LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that has locked the file."""

NETWORK_FILE_SYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs", "pvfs2", "orangefs",
    "glusterfs", "ocfs2", "gfs2", "wekafs", "panfs", "vboxsf", "virtiofs",
}  # fmt: skip
"""File systems shared between machines, by their names in /proc/mounts; `fuse` and `fuse.*` count as such too."""


class ResponseCache:
    """Replies in a SQLite file, each committed as it arrives.

    Several commands may share a file. It is written with write-ahead logging, which lets readers and a writer work
    side by side but needs memory shared between the processes. SQLite does not support that on network file systems
    (sqlite.org/wal.html), so a file there uses a rollback journal (`DELETE`) instead.

    Raises:
        UserError: the file cannot be opened or written, is not a response cache, or stays locked by another process.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite does not say why it cannot open a file.
            open(self._path, "ab").close()
        try:
            self._database = sqlite3.connect(self._path, timeout=LOCK_TIMEOUT, isolation_level=None)
            self._choose_journal()
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, completion TEXT NOT NULL)"
            )
            columns = [row[1] for row in self._database.execute("PRAGMA table_info(replies)")]
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error
        if columns != ["key", "completion"]:
            raise UserError(f"{path}: is another program's database, not a response cache; choose another file")
        # A corrupt byte may not be valid UTF-8; that damages one reply, not the file.
        self._database.text_factory = lambda raw: raw.decode("utf-8", "replace")

    def get(self, key: str) -> Completion | None:
        """The reply stored under `key`, or None if there is none or it is damaged.

        Raises:
            UserError: the file is damaged, or stays locked by another process.
        """
        rows = self.execute("SELECT completion FROM replies WHERE key = ?", (key,))
        reply = _decoded(rows[0][0]) if rows else None
        if rows and reply is None:
            logger.warning("%s: a cached reply is damaged; requesting it again", self._path)
        return reply

    def put(self, key: str, completion: Completion) -> None:
        """Store a reply durably.

        Raises:
            UserError: the file is damaged, cannot be written, or stays locked by another process.
        """
        text = json.dumps(asdict(completion))
        self.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, f"{text}\n{_checksum(text)}"))

    def execute(self, statement: str, values: Sequence[str | None] = ()) -> list[tuple[Any, ...]]:
        """The rows of an SQL statement, committed at once.

        Raises:
            UserError: the file is damaged, cannot be written, or stays locked by another process.
        """
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error

    def _choose_journal(self) -> None:
        file_system = file_system_of(self._path)
        if not is_shared(file_system):
            self._change_journal("WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            return
        logger.info(
            "%s: on a network file system (%s); using a rollback journal, which is slower than write-ahead logging "
            "on a local disk",
            self._path,
            file_system,
        )
        self._change_journal("DELETE")
        self._database.execute("PRAGMA synchronous=FULL")

    def _change_journal(self, mode: str) -> None:
        # Only here SQLite does not wait for other processes: if two open a new file at once, it refuses one of them.
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._database.execute(f"PRAGMA journal_mode={mode}")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0.01, 0.05))

    def _unusable(self, error: sqlite3.DatabaseError) -> UserError:
        if _is_busy(error):
            return UserError(
                f"{self._path}: another process has locked the response cache for {LOCK_TIMEOUT:.0f} s; wait until it "
                "has finished and run the same command again, or choose another file with --cache"
            )
        if _code(error) == sqlite3.SQLITE_NOTADB:
            return UserError(f"{self._path}: is not a response cache ({error}); choose another file or remove it")
        return storage_error(error, self._path) or UserError(
            f"{self._path}: the response cache cannot be used ({error}); remove it or choose another file with --cache"
        )

    def __len__(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM replies").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def file_system_of(path: Path) -> str:
    """The type of the file system that a path is on, as the operating system names it; empty if unknown."""
    import psutil

    mounts = [each for each in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(each.mountpoint)]
    # Later mounts hide earlier ones at the same place.
    innermost = max(enumerate(mounts), key=lambda each: (len(each[1].mountpoint), each[0]), default=None)
    return innermost[1].fstype if innermost else ""


def is_shared(file_system: str) -> bool:
    """Whether a file system of this type may be shared between machines."""
    return file_system in NETWORK_FILE_SYSTEMS or file_system.partition(".")[0] == "fuse"


def _code(error: sqlite3.DatabaseError) -> int:
    """SQLite's primary result code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_busy(error: sqlite3.DatabaseError) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _decoded(stored: Any) -> Completion | None:
    """The completion in a stored value, JSON followed by its checksum; None if it is damaged."""
    text, _, checksum = str(stored).partition("\n")
    if checksum != _checksum(text):
        return None
    value = json.loads(text)
    tokens = value.get("tokens")
    return replace(Completion(**value), tokens=tokens and [(token, logprob) for token, logprob in tokens])
