"""The releases of others: their files with addresses and known properties, and the place of fetched ones here.

Each benchmark, corpus and ready-made index declares its release beside its loader, for `notewriter fetch`.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

HOME = "NOTEWRITER_HOME"
"""The environment variable with the folder of fetched files."""

ORIGIN = "origin.json"
"""The file beside fetched ones with their origin."""

FETCHED = "fetched"
"""The value of a path option that stands for fetched files."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A published file.

    Args:
        address: `hf://datasets/OWNER/NAME@REVISION/PATH` or `https://HOST/PATH`; several are parts, joined in order.
        name: its name here, with `/` below folders; by default the last part of its address.
        split: the questions in it, such as `dev`; empty for what every split needs.
        member: of an archive, the file or folder inside it that is kept, without the folders above.
        size: bytes of the file that is downloaded, or of its parts together.
        about: the same as its page rounds it, where the exact number is not known.
        sha256: of the downloaded file; of parts, of their whole.
        rows: the number of questions.
        unverified: what about it could not be looked up at its source.
    """

    address: str | tuple[str, ...]
    name: str = ""
    split: str = ""
    member: str = ""
    size: int | None = None
    about: int | None = None
    sha256: str = ""
    rows: int | None = None
    unverified: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of its parts, one for a file that is in one piece."""
        return (self.address,) if isinstance(self.address, str) else self.address

    @property
    def here(self) -> str:
        """The file's name on this machine."""
        return self.name or (self.member or self.addresses[0].partition("?")[0]).rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Release:
    """Files that were published together, and that lie in one folder here.

    Its text, for cards and help, has its address and the names of its files.

    Args:
        name: of its folder; two that need the same files share one release.
        page: where people find it, without `https://`.
        licence: the Hub's identifier of its licence, or a few words.
        files: the files to fetch; of those with a split, the evaluated one first.
        note: more about it, for people.
    """

    name: str
    page: str
    licence: str
    files: tuple[File, ...]
    note: str = ""

    def __str__(self) -> str:
        names = list(dict.fromkeys(file.here for file in self.files))
        listed = ", ".join(names if len(names) < 5 else [names[0], "...", names[-1]])
        return f"{self.page}: {listed}" + (f"; {self.note}" if self.note else "")

    @property
    def folder(self) -> Path:
        """The folder of its files on this machine, fetched or not."""
        return home() / self.name

    @property
    def splits(self) -> list[str]:
        """The names of its splits, the one first that is evaluated by default."""
        return [file.split for file in self.files if file.split]

    def of_split(self, split: str | None) -> Iterator[File]:
        """The files of a split with those that every split needs; all files for None."""
        return (file for file in self.files if split is None or file.split in ("", split))

    def path(self, split: str | None, kind: str, name: str) -> Path:
        """The fetched file of a split; by default of the one that is evaluated.

        Raises:
            UserError: there is no such split, or its file was not fetched; names the command that fetches it, by this
            `kind` and `name`.
        """
        split = split or next(iter(self.splits), None)
        files = [file for file in self.files if file.split == split]
        if not files:
            known = f"choose one of: {', '.join(self.splits)}" if self.splits else "give your file with --path"
            raise UserError(f"split: {name} has no split {split!r}; {known}")
        # Those beside it are needed as well.
        paths = self.found(self.of_split(split), f"notewriter fetch {kind} {name}")
        return next(path for path in paths if path == self.folder / files[0].here)

    def found(self, files: Iterable[File], command: str) -> list[Path]:
        """Some of its files on this machine.

        Raises:
            UserError: one was not fetched; names the `command` that fetches it.
        """
        paths = [self.folder / file.here for file in files]
        for path in paths:
            if not path.exists():
                raise UserError(f"{path}: is not there; get it with `{command}`, or give your own file with --path")
        return paths


def known_size(files: Iterable[File]) -> tuple[int, bool]:
    """The bytes to download for some files as far as they are known without asking, and whether all are.

    An archive counts once.
    """
    sizes = {file.address: file.size or file.about for file in files}
    return sum(size for size in sizes.values() if size), None not in sizes.values()


def only(release: Release, *names: str) -> Release:
    """A release with only the files of these names."""
    return dataclasses.replace(release, files=tuple(file for file in release.files if file.here in names))


def home() -> Path:
    """The folder of fetched files: $NOTEWRITER_HOME, or else `notewriter` in the folder of the Hub's cache."""
    if named := os.environ.get(HOME):
        return Path(named).expanduser().absolute()
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "notewriter"


class FetchedFrom(TypedDict):
    """The part of an `origin.json` that is read: by name, the record of each file."""

    files: dict[str, dict[str, object]]


def origin(folder: Path) -> dict[str, dict[str, object]]:
    """The records of the files in a folder by name; empty where nothing was fetched.

    Raises:
        UserError: the record is damaged.
    """
    path = folder / ORIGIN
    if not path.is_file():
        return {}
    record: FetchedFrom = jsonl.read_object(path, FetchedFrom, "remove it: the files beside it are fetched again")
    return record["files"]
