"""Writing a corpus folder: streamed, with a manifest; the folder appears under its name when it is complete."""

import contextlib
import dataclasses
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from notewriter.corpora.reading import time_limit
from notewriter.corpora.source import Document, Origin, Skipped, Source
from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError, writing
from notewriter.ground.folders import check_replaceable, new_folder
from notewriter.ground.text import hash64, without_surrogates

logger = logging.getLogger(__name__)

SCHEMA = "notewriter/corpus/1"
CORPUS, SKIPPED, MANIFEST = "corpus.jsonl", "skipped.jsonl", "manifest.json"
MAX_SHOWN = 20
"""Skipped items named on the terminal; the file has all of them."""

HOPELESS = 1000
"""The number of failed records, with no usable one among them, at which a build gives up on a uniform source."""


@dataclass
class Counts:
    """A build's counts: documents but for repeated ones, passages, and items that could not be used."""

    documents: int = 0
    repeated: int = 0
    left_out: int = 0
    passages: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Build:
    """The plan of a corpus: a source, its paths, and the way to split.

    With `page_title`, documents that have none are left out, and the passages of the others have it as their title.
    """

    source: Source
    paths: Sequence[Path]
    split: Callable[[Document], Iterator[tuple[str, str, Origin]]]
    is_split: bool
    page_title: Callable[[Document], str | None] | None = None


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a corpus folder, or None if there is none.

    Raises:
        UserError: it cannot be read.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    manifest: dict[str, Any] = jsonl.read_object(path, dict[str, Any], f"remove {folder} or choose another output_dir")
    return manifest


def hash_source(source: Source, paths: Sequence[Path]) -> tuple[str, int]:
    """A SHA-256 of the names and contents of a source's files, and their number of bytes.

    Raises:
        UserError: a path cannot be read.
    """
    digest, total = hashlib.sha256(), 0
    for item in tqdm(source.inputs(paths), desc="hash", unit=" files", leave=False, delay=1):
        if isinstance(item, Skipped):
            digest.update(f"{item.name}\0{item.reason}\n".encode("utf-8", "surrogateescape"))
            continue
        name, path = item
        try:
            content = file_digest(path)
            total += path.stat().st_size
        except OSError as error:
            # Reported when it is read.
            content = hashlib.sha256(str(error.strerror).encode()).hexdigest()
        # The name without the folder: a corpus that was moved is the same one.
        name = path.name if source.is_uniform else name
        digest.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest(), total


@contextlib.contextmanager
def corpus_folder(output_dir: Path) -> Iterator[Path]:
    """The folder to build in, which replaces `output_dir` when the block ends.

    Raises:
        UserError: `output_dir` exists and is neither a corpus folder nor empty, or is being built by another process.
    """
    check_replaceable(output_dir)
    if output_dir.exists() and not (output_dir.is_dir() and not any(output_dir.iterdir())):
        manifest = read_manifest(output_dir) if output_dir.is_dir() else None
        if (manifest or {}).get("schema") != SCHEMA:
            raise UserError(f"{output_dir}: exists and is not a corpus; choose another --output_dir or remove it")
    with writing(output_dir):
        output_dir.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(output_dir) as folder:
        yield folder


def write(build: Build, folder: Path, total: int | None = None) -> Counts:
    """Write `corpus.jsonl` and `skipped.jsonl` into a folder.

    Args:
        build: what to build.
        folder: the folder, as `corpus_folder` yields it.
        total: the expected number of documents, for the progress bar.

    Raises:
        UserError: an input cannot be read, no record of a uniform source can be used, or the disk is full.
    """
    with (
        writing(folder),
        # Otherwise a warning would be appended to the progress bar.
        logging_redirect_tqdm(),
        open(folder / CORPUS, "wb") as corpus,
        open(folder / SKIPPED, "wb") as skipped,
        tqdm(desc="corpus", unit=" documents", unit_scale=True, total=total) as bar,
    ):
        output = _Output(build, corpus, skipped, bar)
        for item in build.source.inputs(build.paths):
            if isinstance(item, Skipped):
                output.skip(item)
            else:
                output.read(*item)
    return output.counts


class _Output:
    """The open files of a build, and the counts so far."""

    def __init__(self, build: Build, corpus: IO[bytes], skipped: IO[bytes], bar: "tqdm[Any]") -> None:
        self._build, self._corpus, self._skipped, self._bar = build, corpus, skipped, bar
        self.counts = Counts()
        # Id -> title and text. Numbers take half the memory of strings.
        self._written: dict[int, int] = {}

    def read(self, name: str, path: Path) -> None:
        """Write the passages of a file.

        Raises:
            UserError: a document has the id of another one.
        """
        source = self._build.source
        for place, record in source.records(name, path):
            try:
                documents = source.parse(place, record)
            except UserError as error:
                self.skip(Skipped(place, str(error).removeprefix(f"{place}: ")))
                continue
            for document in documents:
                self._bar.update()
                if not (source.has_repeats and hash64(document.id) in self._written):
                    self._add(place, document)
                elif source.has_versions or self._written[hash64(document.id)] == _contents(document):
                    self.counts.repeated += 1
                else:
                    raise UserError(
                        f"{place}: the id {document.id!r} is also that of a document with another text, so that a "
                        "question's gold evidence would be either; make a corpus of each file, or other ids"
                    )

    def _add(self, place: str, document: Document) -> None:
        self.counts.documents += 1
        page = self._build.page_title(document) if self._build.page_title else ""
        if page is None:
            self.counts.left_out += 1
            return
        try:
            with time_limit(place):
                passages = list(self._build.split(document))
        except UserError as error:
            self.skip(Skipped(place, str(error).removeprefix(f"{place}: ")))
            return
        if not passages:
            self.skip(Skipped(place, "contains no text"))
            return
        for number, (title, text, origin) in enumerate(passages, start=1):
            id = f"{document.id}#{number}" if self._build.is_split else document.id
            passage: dict[str, Any] = {"id": id, "title": page or title, "text": text}
            if origin:
                passage["origin"] = origin
            self._corpus.write((without_surrogates(jsonl.dumps(passage)) + "\n").encode())
        self.counts.passages += len(passages)
        if self._build.source.has_repeats:
            self._written[hash64(document.id)] = _contents(document)

    def skip(self, item: Skipped) -> None:
        """Report something that could not be used.

        Raises:
            UserError: nothing of a uniform source could be used so far.
        """
        self.counts.skipped += 1
        if self.counts.skipped <= MAX_SHOWN:
            # In quotation marks where a line break or the like would otherwise be shown.
            name = item.name if item.name.isprintable() else repr(item.name)
            logger.warning("%s: %s; skipped", name, item.reason)
        self._skipped.write((jsonl.dumps(dataclasses.asdict(item)) + "\n").encode("utf-8", jsonl.UNENCODABLE))
        if self._build.source.is_uniform and self.counts.skipped >= HOPELESS and not self.counts.passages:
            raise UserError(
                f"{item.name}: {item.reason}, and none of {HOPELESS:,} records could be used; check --source and --path"
            )


def _contents(document: Document) -> int:
    """A hash of the title and the text of a document."""
    return hash64(f"{document.title}\n{document.text}")


def skip_reasons(folder: Path) -> dict[str, int]:
    """The count of each reason in `skipped.jsonl`, most frequent first, without its details on single items."""
    reasons = Counter(str(record["reason"]).partition(" (")[0] for _, record in jsonl.read(folder / SKIPPED))
    return dict(reasons.most_common())
