"""Folders that appear under their final name only when complete, such as indexes and models."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from notewriter.ground.errors import UserError, writing
from notewriter.ground.locks import locked


def check_replaceable(path: Path) -> None:
    """Refuse the current folder and its parents, which cannot be replaced.

    Raises:
        UserError: `path` is one of them.
    """
    if path.resolve() in (here := Path.cwd().resolve(), *here.parents):
        raise UserError(f"{path}: is the current folder or a parent of it and cannot be replaced; choose another")


@contextlib.contextmanager
def new_folder(path: Path, *, resume: bool = False) -> Iterator[Path]:
    """A folder to write into, which replaces `path`, or the folder that it links to, when the block ends.

    With `resume`, the block finds what an interrupted or failed run has written, and its own output is kept if it
    fails. Only one process at a time builds a folder; the lock is the hidden file `.NAME.lock` beside it.

    Raises:
        UserError: another process is building it, or it cannot be written.
    """
    check_replaceable(path)
    if path.is_symlink():
        path = path.resolve()
    partial, old = (path.with_name(path.name + ending) for ending in (".partial", ".old"))
    with locked(path, path.with_name(f".{path.name}.lock")), writing(path):
        # Left behind by a killed run.
        for folder in (old,) if resume else (partial, old):
            shutil.rmtree(folder, ignore_errors=True)
        partial.mkdir(exist_ok=True)
        try:
            yield partial
        except BaseException:
            if not resume or not any(partial.iterdir()):
                shutil.rmtree(partial, ignore_errors=True)
            raise
        if path.exists():
            os.rename(path, old)
        os.rename(partial, path)
        shutil.rmtree(old, ignore_errors=True)
