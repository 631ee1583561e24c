"""The passages of an index by position: JSON Lines on disk, memory-mapped by searches.

Every kind of index has its passages here. Line `n` of `passages.jsonl` is passage `n`; `lines.npy` has the offset of
every line, `ids.npy` and `titles.npy` find passages by id and by title. A file never changes once it is written, so
indexes of one corpus can share them by hard links. Building takes 24 bytes of memory a passage, for its line and the
hashes of its id and title.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.ground.records import Passage
from notewriter.ground.terminal import say_once
from notewriter.ground.text import hash64, without_surrogates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = Lazy("numpy")

logger = logging.getLogger(__name__)

PASSAGES, LINES, IDS, TITLES = "passages.jsonl", "lines.npy", "ids.npy", "titles.npy"

REMEDY = "remove it and build it again"

_encode = json.JSONEncoder(ensure_ascii=False).encode


class Writer(AbstractContextManager["Writer"]):
    """Writes the passages of a folder, which are complete after `finish`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts, self._ids, self._titles = array("q", [0]), array("Q"), array("Q")
        # Stays open while passages are appended.
        self._file = open(folder / PASSAGES, "wb")  # noqa: SIM115

    def append(self, passage: Passage) -> Passage:
        """Write a passage; returns it as written, lone surrogates replaced."""
        record = {"id": passage.id, "title": passage.title, "text": passage.text}
        try:
            line = _encode(record).encode() + b"\n"
        except UnicodeEncodeError:
            return self.append(Passage(*map(without_surrogates, record.values())))
        self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))
        self._ids.append(hash64(passage.id))
        self._titles.append(hash64(passage.title))
        return passage

    def finish(self) -> int:
        """Complete the passages of the folder; returns their number.

        Raises:
            UserError: there is none, or an id occurs twice.
        """
        if not self._ids:
            raise UserError("there are no passages to index; check the corpus")
        self._file.flush()
        os.fsync(self._file.fileno())
        ids = _table(np.frombuffer(self._ids, np.uint64))
        self._check_ids(*ids)
        _save(self._folder / IDS, ids)
        _save(self._folder / TITLES, _table(np.frombuffer(self._titles, np.uint64)))
        # Written last: it completes the passages.
        _save(self._folder / LINES, np.frombuffer(self._starts, np.int64))
        return len(self._ids)

    def _check_ids(self, hashes: NDArray[np.uint64], order: NDArray[np.uint64]) -> None:
        equal = hashes[1:] == hashes[:-1]
        read = np.memmap(self._file.name, np.uint8, "r")
        firsts: dict[str, int] = {}
        for position in map(int, np.union1d(order[1:][equal], order[:-1][equal])):
            id = _parse(read[self._starts[position] : self._starts[position + 1]]).id
            if (first := firsts.setdefault(id, position)) != position:
                raise UserError(
                    f"corpus: passages {first + 1} and {position + 1} have the same id {id!r}; make ids unique"
                )

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write(corpus: Iterable[Passage], folder: Path) -> int:
    """Write all passages of a corpus; returns their number. Errors are as for `Writer.finish`."""
    with Writer(folder) as store:
        for passage in corpus:
            store.append(passage)
        return store.finish()


class Passages:
    """The passages of a folder. Thread-safe.

    Raises:
        UserError: their files are missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._lines: NDArray[np.int64] = np.load(folder / LINES, mmap_mode="r")
            self._text = np.memmap(folder / PASSAGES, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise UserError(f"{folder}: cannot be opened ({error}); {REMEDY}") from error
        if self._lines.ndim != 1 or self._lines.dtype != np.int64 or self._lines[-1] != len(self._text):
            raise UserError(f"{folder}: is damaged (its passages are not those of {LINES}); {REMEDY}")
        self._lock = threading.Lock()
        self._tables: dict[str, NDArray[np.uint64]] = {}

    def __len__(self) -> int:
        return len(self._lines) - 1

    def __getitem__(self, position: int) -> Passage:
        """The passage at a position.

        Raises:
            UserError: the files are damaged.
        """
        try:
            start, end = self._lines[position : position + 2]
            return _parse(self._text[start:end])
        except (ValueError, TypeError) as error:
            raise UserError(f"{self._folder}: is damaged ({error}); {REMEDY}") from error

    def __iter__(self) -> Iterator[Passage]:
        return map(self.__getitem__, range(len(self)))

    def find(self, id: str) -> int | None:
        """The position of the passage with an id, or None if there is none."""
        id = without_surrogates(id)
        return next((position for position in self._with_hash(IDS, id) if self[position].id == id), None)

    def within(self, scope: Iterable[str]) -> NDArray[np.int64]:
        """The positions of the passages whose id or title is in the scope, in order."""
        positions = set[int]()
        for name in map(without_surrogates, scope):
            candidates = {*self._with_hash(IDS, name), *self._with_hash(TITLES, name)} - positions
            positions.update(each for each in candidates if name in (self[each].id, self[each].title))
        if not positions:
            told = f"{self._folder}: has no passage of a question's documents, so that its searches find nothing"
            say_once(logger, f"{told}; compare what `within` lists with the ids and titles of its passages")
        return np.array(sorted(positions), np.int64)

    def _with_hash(self, name: str, text: str) -> Iterator[int]:
        """The positions that a table has for a text, and perhaps for another of the same hash."""
        hashes, positions = self._table(name)
        hash = np.uint64(hash64(text))
        start, end = np.searchsorted(hashes, [hash, hash + np.uint64(1)])
        return map(int, positions[start:end])

    def _table(self, name: str) -> NDArray[np.uint64]:
        with self._lock:
            if name not in self._tables:
                try:
                    self._tables[name] = np.load(self._folder / name, mmap_mode="r")
                except (OSError, ValueError) as error:
                    raise UserError(f"{self._folder}: cannot be opened ({error}); {REMEDY}") from error
            return self._tables[name]


def are_complete(folder: Path) -> bool:
    """Whether a folder contains passages that are complete."""
    return (folder / LINES).exists()


def link(source: Path, folder: Path) -> None:
    """Share the passages of another index: hard links, or copies across disks.

    Raises:
        UserError: it has none.
    """
    Passages(source)
    for name in (PASSAGES, IDS, TITLES, LINES):
        link_file(source / name, folder / name)


def link_file(source: Path, target: Path) -> None:
    """A second name for a file that never changes, or a copy where the file system allows none."""
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _save(path: Path, values: NDArray[np.int64] | NDArray[np.uint64]) -> None:
    # Under a new name first: the old file may be shared with another index.
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "wb") as file:
        np.save(file, values, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _table(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sorted hashes above their positions."""
    order = np.argsort(hashes, kind="stable")
    return np.stack([hashes[order], order.astype(np.uint64)])


def _parse(line: NDArray[np.uint8]) -> Passage:
    return Passage(**json.loads(line.tobytes()))
