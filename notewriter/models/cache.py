"""The response cache: every reply of a model on disk, so that a killed run repeats no finished call."""

import json
import logging
import sqlite3
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from notewriter.errors import UserError, storage_error, writing
from notewriter.records import Completion
from notewriter.typecheck import misfit

logger = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds to wait for another process that is writing to the same cache."""


class ResponseCache:
    """Replies on disk (SQLite), each committed as it arrives, so that a killed run repeats no finished call."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite does not say why it cannot open a file.
            open(self._path, "ab").close()
        try:
            # Two commands may share one cache: WAL lets them, and a writer waits its turn.
            self._database = sqlite3.connect(self._path, timeout=PATIENCE, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, completion TEXT NOT NULL)"
            )
            columns = [row[1] for row in self._database.execute("PRAGMA table_info(replies)")]
        except sqlite3.DatabaseError as error:
            raise (
                self._busy(error)
                or storage_error(error, self._path)
                or UserError(f"{self._path}: is no response cache ({error}); name another file or remove it")
            ) from error
        if columns != ["key", "completion"]:
            raise UserError(f"{path}: is another program's database, not a response cache; name another file")
        # A byte that has changed can leave no UTF-8; it is one reply that is damaged, not the file.
        self._database.text_factory = lambda raw: raw.decode("utf-8", "replace")

    def get(self, key: str) -> Completion | None:
        """The reply stored under `key`, if there is one; one that is damaged is as good as none.

        Raises:
            UserError: the file is damaged.
        """
        try:
            row = self._database.execute("SELECT completion FROM replies WHERE key = ?", (key,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error
        reply = _decoded(row[0]) if row else None
        if row and reply is None:
            logger.warning("%s: a reply in it is damaged; it is asked for again", self._path)
        return reply

    def put(self, key: str, completion: Completion) -> None:
        """Store a reply; it is there after a kill.

        Raises:
            UserError: the file is damaged, or cannot be written.
        """
        text = json.dumps(asdict(completion))
        try:
            self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, f"{text}\n{_checksum(text)}"))
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: sqlite3.DatabaseError) -> UserError:
        return (
            self._busy(error)
            or storage_error(error, self._path)
            or UserError(
                f"{self._path}: the response cache cannot be used ({error}); remove it or name another file with cache"
            )
        )

    def _busy(self, error: sqlite3.DatabaseError) -> UserError | None:
        """Another process has held the database's lock for longer than `PATIENCE`; the file itself is fine."""
        # Extended codes have the primary one in their lowest byte.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return None
        return UserError(
            f"{self._path}: another process has locked the response cache for {PATIENCE:.0f} s; wait until that "
            "process has ended and run the same command again, or name another file with cache"
        )

    def __len__(self) -> int:
        try:
            return int(self._database.execute("SELECT count(*) FROM replies").fetchone()[0])
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _decoded(stored: Any) -> Completion | None:
    """A completion as the cache stores it, JSON and its checksum; None where it is damaged.

    Caches of earlier versions hold the JSON alone.
    """
    try:
        text, _, checksum = str(stored).partition("\n")
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if (checksum and checksum != _checksum(text)) or misfit(value, Completion):
        return None
    tokens = value.get("tokens")
    return replace(Completion(**value), tokens=tokens and [(token, logprob) for token, logprob in tokens])
