"""A folder of Markdown, text, HTML, PDF and Word files.

A passage's id begins with its file's path in the folder. Hidden files and folders are left out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from notewriter.corpora.extraction import EXTRACTORS, extract
from notewriter.corpora.source import Record, Skipped, Source
from notewriter.ground.errors import UserError
from notewriter.ground.text import without_surrogates


def _inputs(paths: Sequence[Path]) -> Iterator[tuple[str, Path] | Skipped]:
    """The usable files below some folders, sorted by name, or the files themselves.

    Of several paths, each name begins with the path's own last part.

    Raises:
        UserError: a path does not exist, or two end in the same part.
    """
    names = [path.resolve().name for path in paths]
    if twice := next((path for path in paths if names.count(path.resolve().name) > 1), None):
        raise UserError(f"{twice}: another path ends in the same name; rename one of them")
    for path, name in zip(paths, names, strict=True):
        if path.is_file():
            yield from _file(path, name)
        elif path.is_dir():
            yield from _walk(path, "" if len(paths) == 1 else name + "/", path.resolve(), set())
        else:
            raise UserError(f"{path}: is no file or folder; check the path")


def _walk(folder: Path, prefix: str, top: Path, entered: set[Path]) -> Iterator[tuple[str, Path] | Skipped]:
    """The files below a folder, sorted by name; what several links lead to is read once."""
    entered.add(folder.resolve())
    try:
        children = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        yield Skipped(prefix, f"cannot be read ({error.strerror})")
        return
    for path in children:
        name = prefix + path.name
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if path.resolve() in entered:
                yield Skipped(name, "is a link to a folder that is read under another name")
            else:
                yield from _walk(path, f"{name}/", top, entered)
        elif not path.is_file():
            yield Skipped(name, "is a broken or circular link" if path.is_symlink() else "is not a regular file")
        elif path.is_symlink() and (target := path.resolve()).is_relative_to(top):
            if target in entered or _is_found(target.relative_to(top)):
                yield Skipped(name, "is a link to a file that is read under another name")
            else:
                entered.add(target)
                yield from _file(path, name)
        else:
            yield from _file(path, name)


def _is_found(path: Path) -> bool:
    """Whether a file is read where it lies: not in a store of hidden folders or of names without an ending."""
    return not any(part.startswith(".") for part in path.parts) and path.suffix.lower() in EXTRACTORS


def _file(path: Path, name: str) -> Iterator[tuple[str, Path] | Skipped]:
    if without_surrogates(name) != name:
        yield Skipped(name, "has a name that is not UTF-8; rename it")
    elif not name.isprintable():
        yield Skipped(name, "has a line break or another control character in its name; rename it")
    elif path.suffix.lower() not in EXTRACTORS:
        yield Skipped(name, f"has none of the endings {', '.join(EXTRACTORS)}")
    else:
        yield name, path


def _records(name: str, path: Path) -> Iterator[Record]:
    yield name, path


SOURCE = Source(
    title="a folder of documents",
    files=f"files that end in {', '.join(EXTRACTORS)}",
    inputs=_inputs,
    records=_records,
    parse=lambda name, path: [extract(name, path)],
    split="headings",
    is_uniform=False,
)
