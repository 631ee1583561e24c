"""The passages of an index by position: JSON Lines on disk, memory-mapped by searches.

Every kind of index has its passages here. Line `n` of `passages.jsonl` is passage `n`; `lines.npy` has the offset of
every line, `ids.npy` and `titles.npy` find passages by id and by title. Passages added later are in `passages-2.jsonl`
and so on. A file never changes once it is written, so indexes of one corpus can share them by hard links. Building
takes 24 bytes of memory a passage, for its line and the hashes of its id and title.
"""

import json
import os
import shutil
import threading
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import count, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.ground.text import hash64, without_surrogates

PASSAGES, LINES, IDS, TITLES, DELETED = "passages.jsonl", "lines.npy", "ids.npy", "titles.npy", "deleted.npy"

REMEDY = "remove it and build it again"

_encode = json.JSONEncoder(ensure_ascii=False).encode


class Writer(AbstractContextManager["Writer"]):
    """Appends passages to a folder; they are part of it after `finish`.

    The first `done` passages are those that an interrupted writer has left and `sync` has made safe: they are
    appended again for their ids, but not written.
    """

    def __init__(self, folder: Path, done: int = 0) -> None:
        self._folder, self._done = folder, done
        self._earlier = Passages(folder)
        self._part = self._earlier.parts + 1
        self._starts, self._hashes, self._titles = array("q", [0]), array("Q"), array("Q")
        # Stays open while passages are appended.
        self._file = open(_path(folder, PASSAGES, self._part), "r+b" if done else "wb")  # noqa: SIM115

    def __len__(self) -> int:
        """Passages of the folder, those of earlier writers included."""
        return len(self._earlier) + len(self._hashes)

    def append(self, passage: Passage) -> Passage:
        """Write a passage; returns it as written, lone surrogates replaced."""
        record = {"id": passage.id, "title": passage.title, "text": passage.text}
        try:
            line = _encode(record).encode() + b"\n"
        except UnicodeEncodeError:
            return self.append(Passage(*map(without_surrogates, record.values())))
        if len(self._hashes) == self._done:
            # Here, or at once in a new file, writing begins.
            self._file.truncate(self._starts[-1])
            self._file.seek(self._starts[-1])
        if len(self._hashes) >= self._done:
            self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))
        self._hashes.append(hash64(passage.id))
        self._titles.append(hash64(passage.title))
        return passage

    def sync(self) -> None:
        """Make what is written survive a crash of the machine."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self) -> int:
        """Make the appended passages part of the folder; returns the number of all its passages.

        Raises:
            UserError: there is none, or an id occurs twice.
        """
        if not self._hashes:
            raise UserError("there are no passages to index; check the corpus")
        self.sync()
        hashes = np.frombuffer(self._hashes, np.uint64)
        ids = _table(hashes)
        self._check_ids(hashes, ids[1].astype(np.int64))
        _save(_path(self._folder, IDS, self._part), ids)
        _save(_path(self._folder, TITLES, self._part), _table(np.frombuffer(self._titles, np.uint64)))
        # Written last: it makes the part complete.
        _save(_path(self._folder, LINES, self._part), np.frombuffer(self._starts, np.int64))
        return len(self)

    def _check_ids(self, hashes: NDArray[np.uint64], order: NDArray[np.int64]) -> None:
        equal = hashes[order][1:] == hashes[order][:-1]
        suspects = np.union1d(order[1:][equal], order[:-1][equal])
        read = np.memmap(self._file.name, np.uint8, "r")

        def id_of(position: int) -> str:
            return _parse(read[self._starts[position] : self._starts[position + 1]]).id

        firsts: dict[str, int] = {}
        for position in map(int, suspects):
            if (first := firsts.setdefault(id := id_of(position), position)) != position:
                raise UserError(f"passages {first + 1} and {position + 1} have the same id {id!r}; make ids unique")
        for position in self._earlier.candidates(hashes):
            if self._earlier.find(id := id_of(position)) is not None:
                raise UserError(f"passage {position + 1} has the id {id!r}, which is in the index; delete that first")

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Passages:
    """The passages of a folder. Thread-safe.

    Raises:
        UserError: their files are damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.parts = next(part for part in count() if not _path(folder, LINES, part + 1).exists())
        numbers = range(1, self.parts + 1)
        try:
            self._lines = [np.load(_path(folder, LINES, part), mmap_mode="r") for part in numbers]
            self._texts = [np.memmap(_path(folder, PASSAGES, part), np.uint8, "r") for part in numbers]
        except (OSError, ValueError) as error:
            raise UserError(f"{folder}: cannot be opened ({error}); {REMEDY}") from error
        for lines, text in zip(self._lines, self._texts, strict=True):
            if lines.ndim != 1 or lines.dtype != np.int64 or lines[-1] != len(text):
                raise UserError(f"{folder}: is damaged (its passages are not those of {LINES}); {REMEDY}")
        self._firsts = np.cumsum([0, *(len(lines) - 1 for lines in self._lines)])
        self._lock = threading.Lock()
        self._tables: dict[str, list[NDArray[np.uint64]]] = {}
        self._deleted: set[int] = set()

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, position: int) -> Passage:
        """The passage at a position.

        Raises:
            UserError: the files are damaged.
        """
        try:
            part = int(np.searchsorted(self._firsts, position, side="right")) - 1
            start, end = self._lines[part][(row := position - int(self._firsts[part])) : row + 2]
            return _parse(self._texts[part][start:end])
        except (ValueError, TypeError, IndexError) as error:
            raise UserError(f"{self._folder}: is damaged ({error}); {REMEDY}") from error

    def __iter__(self) -> Iterator[Passage]:
        return (self[position] for position in range(len(self)))

    def find(self, id: str) -> int | None:
        """The position of the passage with an id, or None if there is none or it is deleted."""
        id = without_surrogates(id)
        return next((position for position in self._with_hash(IDS, id) if self[position].id == id), None)

    def within(self, scope: Iterable[str]) -> NDArray[np.int64]:
        """The positions of the passages whose id or title is in the scope, in order; deleted ones are left out."""
        positions = set[int]()
        for name in map(without_surrogates, scope):
            candidates = {*self._with_hash(IDS, name), *self._with_hash(TITLES, name)} - positions
            positions.update(each for each in candidates if name in (self[each].id, self[each].title))
        return np.array(sorted(positions), np.int64)

    def first(self, most: int) -> list[Passage]:
        """The first passages in corpus order, at most so many; deleted ones are left out."""
        deleted = _deleted(self._folder)
        return [self[position] for position in islice((p for p in range(len(self)) if p not in deleted), most)]

    def candidates(self, hashes: NDArray[np.uint64]) -> list[int]:
        """Which of some hashes are those of ids in this folder, as indices into `hashes`."""
        found = [np.flatnonzero(np.isin(hashes, table[0])) for table in self._open(IDS)]
        return sorted(map(int, np.concatenate(found))) if found else []

    def _with_hash(self, name: str, text: str) -> Iterator[int]:
        """The positions that a table has for a text, and perhaps for another of the same hash."""
        wanted = np.uint64(hash64(text))
        for first, (hashes, positions) in zip(self._firsts, self._open(name), strict=False):
            start, end = np.searchsorted(hashes, [wanted, wanted + np.uint64(1)])
            for position in positions[start:end]:
                if (found := int(first) + int(position)) not in self._deleted:
                    yield found

    def _open(self, name: str) -> list[NDArray[np.uint64]]:
        with self._lock:
            if name not in self._tables:
                self._deleted = _deleted(self._folder)
                try:
                    self._tables[name] = [self._table(name, part) for part in range(1, self.parts + 1)]
                except (OSError, ValueError) as error:
                    raise UserError(f"{self._folder}: cannot be opened ({error}); {REMEDY}") from error
            return self._tables[name]

    def _table(self, name: str, part: int) -> NDArray[np.uint64]:
        path = _path(self._folder, name, part)
        if name == TITLES and not path.exists():
            # Earlier versions wrote none.
            positions = range(int(self._firsts[part - 1]), int(self._firsts[part]))
            return _table(np.array([hash64(self[position].title) for position in positions], np.uint64))
        table: NDArray[np.uint64] = np.load(path, mmap_mode="r")
        return table


def delete(folder: Path, positions: Iterable[int]) -> None:
    """Let ids no longer find the passages at these positions; their lines stay."""
    _save(folder / DELETED, np.array(sorted(_deleted(folder) | set(positions)), np.int64))


def link(source: Path, folder: Path) -> None:
    """Share the passages of another index, which must not have any deleted: hard links, or copies across disks.

    Raises:
        UserError: it has no passages of this form, or some are deleted.
    """
    passages = Passages(source)
    if not len(passages) or not all(_path(source, IDS, part + 1).exists() for part in range(passages.parts)):
        raise UserError(f"{source}: was built by an earlier version; build it again to share its passages")
    if _deleted(source):
        raise UserError(f"{source}: some of its passages are deleted; build the index without --share")
    for part in range(1, passages.parts + 1):
        for name in (PASSAGES, IDS, TITLES, LINES):
            if (file := _path(source, name, part)).exists():
                link_file(file, _path(folder, name, part))


def link_file(source: Path, target: Path) -> None:
    """A second name for a file that never changes, or a copy where the file system allows none."""
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _deleted(folder: Path) -> set[int]:
    try:
        return set(np.load(folder / DELETED).tolist()) if (folder / DELETED).exists() else set()
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: cannot be opened ({error}); {REMEDY}") from error


def _path(folder: Path, name: str, part: int) -> Path:
    """`lines.npy`, `lines-2.npy`, ..."""
    stem, suffix = name.split(".")
    return folder / (name if part == 1 else f"{stem}-{part}.{suffix}")


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
