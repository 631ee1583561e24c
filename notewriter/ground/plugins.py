"""Plug-ins: methods, judges, metric families, datasets and retrievers of other packages and files.

A name is one of ours, an entry point of an installed package (group `notewriter.methods`, `.judges`, `.metrics`,
`.datasets` or `.retrievers`), or a place: `package.module:object` or `path/to/file.py:object`. A caller has to choose
between two functions. `load` imports a place; it is for names that a user wrote on the command line, in a file of
options or in Python. `Plugins.choose` imports no place; it is for all other names, such as those in a run folder.
"""

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError, first_leaf, meant, one_line
from notewriter.ground.terminal import say_once

logger = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST = 200
"""Characters of somebody else's error that are shown."""

_LOADED: dict[str, object] = {}
"""The objects that `load` has imported in this process, by place."""

_FILES: dict[tuple[str, str], Path] = {}
"""(group, name) -> the file of the code of an entry that was asked for."""


class Plugins(dict[str, T]):
    """A table of `kind` by name: ours, and those of others, loaded when they are first asked for.

    Iteration gives ours and those that were asked for, so that a package that cannot be imported stops nobody else.
    A place (`file.py:object`) is an entry only once `load` has imported it, that is, where a user wrote it: what a run
    folder or a dataset names is no reason to run a file. A method or judge from there has its own name too, as in the
    names of a method's stages.

    Args:
        group: the entry points' group, such as `methods` (of `notewriter.methods`).
        kind: the type of an entry; an object of another type is refused.
        ours: our own entries, which no other package can replace.
        of_function: how a function becomes an entry, for the error of one that is none.
    """

    def __init__(self, group: str, kind: type[T], ours: Mapping[str, T], of_function: str = "") -> None:
        super().__init__(ours)
        self.ours = frozenset(ours)
        self.group, self.kind = f"notewriter.{group}", kind
        self._of_function = of_function

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._place_of(name) is not None

    def __missing__(self, name: str) -> T:
        if (place := self._place_of(name)) is None:
            raise KeyError(name)
        entry = load(place)
        if not isinstance(entry, self.kind):
            remedy = self._of_function if inspect.isfunction(entry) and self._of_function else "name the object itself"
            raise UserError(f"{place}: is no {self.kind.__name__} but {type(entry).__name__}; {remedy}")
        self[name] = entry
        where = place.rpartition(":")[0]
        _FILES[self.group, name] = Path(getattr(sys.modules.get(where), "__file__", None) or where)
        return entry

    def get(self, name: str, default: Any = None) -> Any:
        """The entry of that name, or a default."""
        try:
            return self[name]
        except KeyError:
            return default

    def choose(self, kind: str, name: str) -> T:
        """The entry of that name; `kind` is what the error calls it. Imports no place.

        Raises:
            UserError: there is none, lists the names there are; or it cannot be loaded.
        """
        if name in self.ours and (hidden := self._hidden.get(name)):
            whose = f"of package {hidden.dist.name} " if hidden.dist else ""
            say_once(
                logger,
                f"{kind} {name}: the entry point {whose}with this name ({self.group}: {hidden.value}) is not used, "
                "since ours comes first; give it another name in its package",
            )
        if name in self:
            return self[name]
        if is_place(name):
            raise UserError(
                f"{kind} {name!r}: code that a folder or its data names is not imported; if you trust it, add "
                f"--plugins {name} (in Python: notewriter.ground.plugins.load({name!r}))"
            )
        raise UserError(unknown(kind, name, {*self, *self._entry_points()}))

    def installed(self) -> list[T]:
        """Ours, those that were asked for or imported with `load`, and those of installed packages.

        Raises:
            UserError: one of a package cannot be loaded.
        """
        loaded = [place for place, entry in _LOADED.items() if isinstance(entry, self.kind)]
        return [self[name] for name in [*dict.fromkeys([*self, *loaded, *self._entry_points()])]]

    def from_packages(self) -> list[str]:
        """The names of installed packages' entries, which are not imported for it."""
        return sorted(self._entry_points().keys() - self.ours)

    @functools.cached_property
    def _hidden(self) -> dict[str, EntryPoint]:
        """The entry points with the names of ours."""
        return {name: point for name, point in self._entry_points().items() if name in self.ours}

    def _place_of(self, name: object) -> str | None:
        """Where an entry is that is asked for by its place, its object's own name, or its entry point."""
        if name in _LOADED:
            return str(name)
        loaded = {getattr(entry, "name", ""): place for place, entry in _LOADED.items() if isinstance(entry, self.kind)}
        point = self._entry_points().get(str(name))
        return loaded.get(name) or (point.value if point else None)

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {each.name: each for each in entry_points(group=self.group)}


def file_of(group: str, name: str) -> Path | None:
    """The file of the code behind a name, without importing it; None for ours, and for entries that were not asked for.

    Args:
        group: the entry points' group, such as `methods`.
        name: of an entry.
    """
    file = Path(name.rpartition(":")[0])
    return file if file.suffix == ".py" else _FILES.get((f"notewriter.{group}", name))


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """The error of an unknown name, with the nearest known one."""
    known = sorted(names)
    suggestion = meant(name, known)
    return f"unknown {kind} {name!r}; choose one of: {', '.join(known)}" + (f"; {suggestion}" if suggestion else "")


class Misreturn(Exception):
    """A wrong result of a function of somebody else; the text is a predicate, such as `returned None`."""


async def awaited(returned: object) -> Any:
    """The result of an async function of somebody else.

    Raises:
        Misreturn: the function is none, so that there is nothing to wait for.
    """
    if not isinstance(returned, Awaitable):
        raise Misreturn("is no async function; write `async def`")
    return await returned


@contextlib.contextmanager
def faults_of(whose: Callable[[], str], function: Callable[..., Any], *others: type[Exception]) -> Iterator[None]:
    """The faults of somebody else's function as one error each, with the function's own line.

    Such as `metric family mine.py:EXACT ended in ZeroDivisionError: division by zero (mine.py:12); correct it there`.
    Of the errors of tasks in a group, the first one counts. A fault of Notewriter's own passes with its traceback.

    Args:
        whose: gives the beginning of the error.
        function: the function that the block calls.
        others: errors that are not its fault.

    Raises:
        UserError: the block raised anything else.
    """
    try:
        yield
    except Exception as group:
        error = first_leaf(group)
        if isinstance(error, (UserError, *others)) or _is_ours(function):
            raise error from error.__cause__
        said = one_line(error)
        if not isinstance(error, Misreturn):
            # The text of a KeyError is the key, which may be a whole note.
            said = f"ended in {type(error).__name__}: {said[:LONGEST]}{' ...' if len(said) > LONGEST else ''}"
        raise UserError(f"{whose()} {said}{_line(function, error)}; correct it there") from error


def _is_ours(function: Callable[..., Any]) -> bool:
    return (getattr(function, "__module__", None) or "").startswith("notewriter.")


def _line(function: Callable[..., Any], error: BaseException) -> str:
    """Where a function failed: the last line of its own file on the way to the error, else its first one."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ""
    lines = [code.co_firstlineno, *_lines_in(code.co_filename, error)]
    return f" ({Path(code.co_filename).name}:{lines[-1]})"


def _lines_in(file: str, error: BaseException) -> list[int]:
    """The lines of a file on the way to an error."""
    return [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]


def is_place(name: str) -> bool:
    """Whether a name is the place of an object."""
    return ":" in name


def load(place: str) -> Any:
    """The object at `package.module:object` or `path/to/file.py:object`, imported once; from here on it has this name.

    Imports, and so runs, the code there: only for places that a user wrote.

    Raises:
        UserError: the file or module is missing or cannot be imported, or has no such object.
    """
    if place in _LOADED:
        return _LOADED[place]
    where, _, name = place.rpartition(":")
    is_file = where.endswith(".py")
    if is_file and not Path(where).is_file():
        raise UserError(f"{place}: there is no file {where}; check the path before the colon")
    try:
        module = _from_file(Path(where)) if is_file else importlib.import_module(where)
    # A module is a program and can raise anything; its author has to fix it.
    except Exception as error:
        line = "".join(f", line {line}" for line in _lines_in(str(Path(where).resolve()), error)[-1:])
        raise UserError(f"{place}: cannot be imported ({type(error).__name__}: {one_line(error)}{line})") from error
    try:
        _LOADED[place] = getattr(module, name)
    except AttributeError as error:
        names = ", ".join(each for each in vars(module) if not each.startswith("_"))
        raise UserError(f"{place}: {where} has no {name!r}; it has: {names}") from error
    return _LOADED[place]


def _from_file(path: Path) -> ModuleType:
    # One module a file, however often it is named; a copy elsewhere has other prompts beside it.
    where = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    name = f"notewriter_plugin_{path.stem}_{where[:12]}_{file_digest(path)[:12]}"
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
