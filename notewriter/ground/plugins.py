"""What other packages and files add: methods, judges, metric families, datasets, retrievers.

A name stands for one of ours, or for the entry point of that name of an installed package (group `notewriter.methods`,
`.judges`, `.metrics`, `.datasets` or `.retrievers`), or says where the object is: `package.module:object` or
`path/to/file.py:object`.
"""

import importlib.util
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError, one_line

T = TypeVar("T")


class Plugins(dict[str, T]):
    """A table of `kind` by name: ours, and those of others, loaded when they are first asked for.

    Iteration gives ours and those that were asked for, so that a package that cannot be imported stops nobody else.
    A name that says where an object is (with a colon) is loaded by `choose` alone, that is, only where a user wrote it:
    what a run folder or a dataset names is no reason to run a file.

    Args:
        group: the entry points' group, such as `methods` (of `notewriter.methods`).
        kind: the type of an entry; an object of another type is refused.
        ours: our own entries, which no other package can replace.
    """

    def __init__(self, group: str, kind: type[T], ours: Mapping[str, T]) -> None:
        super().__init__(ours)
        self.group, self.kind = f"notewriter.{group}", kind

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._entry_points()

    def __missing__(self, name: str) -> T:
        return self._add(name, self._entry_points()[name].value)

    def get(self, name: str, default: Any = None) -> Any:
        """The entry of that name, or a default."""
        try:
            return self[name]
        except KeyError:
            return default

    def choose(self, kind: str, name: str) -> T:
        """The entry of that name; `kind` is what the error calls it.

        Raises:
            UserError: there is none, or it cannot be loaded; lists the names there are.
        """
        if name in self:
            return self[name]
        if ":" in name:
            return self._add(name, name)
        names = ", ".join(sorted({*self, *self._entry_points()}))
        raise UserError(f"unknown {kind} {name!r}; choose one of: {names}")

    def installed(self) -> list[T]:
        """Ours, those of installed packages, and those that were asked for.

        Raises:
            UserError: one of a package cannot be loaded.
        """
        return [self[name] for name in {**self, **self._entry_points()}]

    def _add(self, name: str, place: str) -> T:
        entry = load(place)
        if not isinstance(entry, self.kind):
            raise UserError(f"{place}: is no {self.kind.__name__} but {type(entry).__name__}; name the object itself")
        self[name] = entry
        return entry

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {each.name: each for each in entry_points(group=self.group)}


def load(place: str) -> Any:
    """The object at `package.module:object` or `path/to/file.py:object`.

    Raises:
        UserError: the file or module is missing or cannot be imported, or has no such object.
    """
    where, _, name = place.rpartition(":")
    try:
        module = _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except FileNotFoundError as error:
        raise UserError(f"{place}: there is no file {where}; check the path before the colon") from error
    # A module is a program and can raise anything; its author has to fix it.
    except Exception as error:
        raise UserError(f"{place}: cannot be imported ({type(error).__name__}: {one_line(error)})") from error
    try:
        return getattr(module, name)
    except AttributeError as error:
        names = ", ".join(each for each in vars(module) if not each.startswith("_"))
        raise UserError(f"{place}: {where} has no {name!r}; it has: {names}") from error


def _from_file(path: Path) -> ModuleType:
    # One module a file, however often it is named.
    name = f"notewriter_plugin_{path.stem}_{file_digest(path)[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
