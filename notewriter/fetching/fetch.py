"""`notewriter fetch`: get published benchmarks, corpora, ready-made indexes and models.

    notewriter fetch                                    all names with sizes and licences
    notewriter fetch dataset hotpotqa                   then `--dataset hotpotqa` needs no --path
    notewriter fetch corpus wiki-18                     then `notewriter corpus --source wiki-18` needs none
    notewriter fetch index wiki-18-e5-flat              then `notewriter index --vectors wiki-18-e5-flat`
    notewriter fetch model Qwen/Qwen2.5-7B-Instruct     into the Hub's cache, or --output_dir
    notewriter fetch pages --dataset frames ...         the pages of Wikipedia that a benchmark's questions name
    notewriter fetch recipe                             the recipes of this package, and copies of them

A killed download goes on where it stopped. Files that are there are not fetched again.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from notewriter.datasets import BENCHMARKS, load_questions
from notewriter.fetching.catalogue import RELEASES
from notewriter.fetching.download import fetch, missing, plan, size_of, size_text
from notewriter.fetching.model import HUB_ID, fetch_model
from notewriter.fetching.remote import Unreachable
from notewriter.ground import config
from notewriter.ground.errors import UserError, free
from notewriter.ground.options import option
from notewriter.ground.releases import File, Release, home, known_size

logger = logging.getLogger(__name__)

KINDS = [*RELEASES, "model"]


@dataclass
class FetchArguments:
    """The options of `notewriter fetch`."""

    split: str | None = option(None, "of a dataset, only the questions of this split; default: all")
    output_dir: str | None = option(None, "for a model: the folder to create; default: the Hub's cache")
    dry_run: bool = option(False, "list what would be fetched, from where, with licence and size, and fetch nothing")
    check: bool = option(True, "refuse a file whose size, SHA-256 or number of questions is not the published one")


def main(argv: list[str]) -> None:
    """Fetch one thing, or list everything.

    Raises:
        UserError: there is no such thing, or it cannot be fetched.
    """
    named = [word for word in argv[:2] if not word.startswith("-")]
    if not named or {"-h", "--help"} & set(argv):
        sys.stdout.write(_list())
    (arguments,) = config.parse(FetchArguments, argv[len(named) :], prog="notewriter fetch KIND NAME")
    if not named:
        return
    kind = named[0]
    if kind not in KINDS:
        raise UserError(f"unknown kind {kind!r}; choose one of: {', '.join(KINDS)}, pages, recipe")
    if len(named) == 1:
        raise UserError(f"{kind}: its name is missing; `notewriter fetch` lists all")
    if kind == "model":
        if arguments.split:
            raise UserError("split: is an option for datasets; leave it out")
        folder = Path(arguments.output_dir) if arguments.output_dir else None
        fetch_model(named[1], folder, dry_run=arguments.dry_run)
    else:
        _fetch(kind, named[1], arguments)


def _fetch(kind: str, name: str, arguments: FetchArguments) -> None:
    release = _release(kind, name)
    if arguments.output_dir:
        raise UserError(
            f"output_dir: is an option for models; {name} lies in {release.folder}, in $NOTEWRITER_HOME; leave it out"
        )
    if arguments.split and arguments.split not in release.splits:
        raise UserError(f"split: {name} has {' and '.join(release.splits) or 'none'}; leave out --split")
    command = f"notewriter fetch {kind} {name}"
    offline = (
        f"on a machine with the internet run `{command}` and copy the folder that it names here as {release.folder}; "
        "HF_ENDPOINT and HTTPS_PROXY are respected"
    )
    files = list(release.of_split(arguments.split))
    lacking = missing(release, files)
    try:
        to_do = plan(lacking, offline)
    except Unreachable as error:
        if all((release.folder / file.here).exists() for file in files):
            logger.warning("%s: is there, and cannot be checked without the internet", release.folder)
        elif arguments.dry_run:
            logger.warning("%s", str(error).partition(";")[0])
            sys.stdout.write(_plan(release, {file: file.size or file.about for file in lacking}, known_size(lacking)))
        else:
            raise
        return
    if to_do:
        sizes = {file: sum(part.size or 0 for part in parts) or None for file, parts in to_do}
        sys.stdout.write(_plan(release, sizes, (size_of(to_do), None not in sizes.values())))
        if arguments.dry_run:
            return
        fetch(release, to_do, _rows(kind, name), offline=offline, check=arguments.check)
    sys.stdout.write(f"{release.folder}: complete\n")


def _release(kind: str, name: str) -> Release:
    """The release of a name.

    Raises:
        UserError: the name is unknown, or nothing is published under it.
    """
    if kind != "dataset":
        return config.choose(kind, name, RELEASES[kind]())
    release = config.choose(kind, name, BENCHMARKS).source
    if release is None:
        raise UserError(f"dataset: {name} is not published anywhere; give its files with --path")
    return release


def _rows(kind: str, name: str) -> Callable[[Path], int] | None:
    """A counter of the questions in a file; `notewriter corpus` counts documents."""
    return (lambda path: len(load_questions(name, path))) if kind == "dataset" else None


def _plan(release: Release, sizes: Mapping[File, int | None], total: tuple[int, bool]) -> str:
    """The plan of a download, for the terminal; `total` as `known_size` gives it."""
    lines = [f"{release.folder}: {release.page}, licence {release.licence}"]
    for file, size in sizes.items():
        lines += [f"  {file.here}  {size_text(size)}  {' + '.join(file.addresses)}"]
        lines += [f"    unverified: {file.unverified}"] if file.unverified else []
    lines += [f"to download: {_size(*total)}; free: {size_text(free(release.folder))}"]
    return "\n".join(lines) + "\n"


def _size(known: int, is_all: bool) -> str:
    return size_text(known) if is_all else f"over {size_text(known)}" if known else "?"


def _list() -> str:
    """The purpose of the command, and everything that it can fetch."""
    lines = [(__doc__ or "").strip(), "", f"Fetched files are in {home()} ($NOTEWRITER_HOME).", ""]
    for kind, releases in RELEASES.items():
        for name, release in releases().items():
            lines += [f"{kind:8} {name:24} {_size(*known_size(release.files)):>12}  {release.licence}"]
    lines += [f"model    any of the Hub by its name, such as {HUB_ID}"]
    return "\n".join(lines) + "\n"
