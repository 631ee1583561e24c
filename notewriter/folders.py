"""Folders that appear under their name only when they are complete, as an index and a model do."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from notewriter.errors import UserError, writing
from notewriter.locks import locked


def check_replaceable(path: Path) -> None:
    """Refuse the current folder and those around it, which no other folder can take the place of.

    Raises:
        UserError: `path` is one of them.
    """
    if path.resolve() in (here := Path.cwd().resolve(), *here.parents):
        raise UserError(f"{path}: is the current folder or one around it, not one to replace; name another folder")


@contextlib.contextmanager
def new_folder(path: Path, *, resume: bool = False) -> Iterator[Path]:
    """A folder to write into, which becomes `path` when the block ends, in place of one that was there before.

    With `resume`, the block finds what one that was killed or failed has written, and what it writes itself stays
    where it fails. One process at a time makes a folder; its lock is the hidden file `.NAME.lock` beside it.

    Raises:
        UserError: another process makes it, or it cannot be written.
    """
    check_replaceable(path)
    partial, old = (path.with_name(path.name + ending) for ending in (".partial", ".old"))
    with locked(path, path.with_name(f".{path.name}.lock")), writing(path):
        # What a killed run left.
        for folder in (old,) if resume else (partial, old):
            shutil.rmtree(folder, ignore_errors=True)
        partial.mkdir(exist_ok=True)
        try:
            yield partial
        except BaseException:
            if not resume:
                shutil.rmtree(partial, ignore_errors=True)
            raise
        if path.exists():
            os.rename(path, old)
        os.rename(partial, path)
        shutil.rmtree(old, ignore_errors=True)
