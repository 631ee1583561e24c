"""Writing a corpus folder: streamed, resumable after a kill, with a manifest.

Every few seconds the output is synced to disk, and `progress.json` records how far the input was read and how long
the output was at that moment. A resumed build cuts the output to that length and goes on from there, so that no
passage is lost or written twice.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import time
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
from notewriter.ground.errors import UserError, writing
from notewriter.ground.folders import check_replaceable, new_folder
from notewriter.ground.text import hash64, without_surrogates

logger = logging.getLogger(__name__)

SCHEMA = "notewriter/corpus/1"
CORPUS, SKIPPED, MANIFEST, PROGRESS = "corpus.jsonl", "skipped.jsonl", "manifest.json", "progress.json"
SYNC_SECONDS = 2.0
MAX_SHOWN = 20
"""Skipped items named on the terminal; the file has all of them."""

HOPELESS = 1000
"""Records that fail, with none before them that did not, until the build gives up on a uniform source."""

CHUNK = 1 << 22
"""Bytes hashed at a time."""


@dataclass
class Progress:
    """How far a build has come: finished inputs, finished records of the next one, and the output so far."""

    inputs: int = 0
    records: int = 0
    corpus_bytes: int = 0
    skipped_bytes: int = 0
    documents: int = 0
    repeated: int = 0
    left_out: int = 0
    passages: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Build:
    """What is built: a source, its paths, and the way to split.

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
    with tqdm(desc="hash", unit="B", unit_scale=True, leave=False, delay=1) as bar:
        for item in source.inputs(paths):
            if isinstance(item, Skipped):
                digest.update(f"{item.name}\0{item.reason}\n".encode("utf-8", "surrogateescape"))
                continue
            name, path = item
            content = hashlib.sha256()
            try:
                with open(path, "rb") as file:
                    while chunk := file.read(CHUNK):
                        content.update(chunk)
                        total += len(chunk)
                        bar.update(len(chunk))
            except OSError as error:
                # Reported when it is read.
                content.update(str(error.strerror).encode())
            # The name without the folder: a corpus that was moved is the same one.
            name = path.name if source.is_uniform else name
            digest.update(f"{name}\0{content.hexdigest()}\n".encode("utf-8", "surrogateescape"))
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
    with new_folder(output_dir, resume=True) as folder:
        yield folder


def write(build: Build, folder: Path, identity: str, total: int | None = None) -> Progress:
    """Write `corpus.jsonl` and `skipped.jsonl` into a folder, or finish what a build of the same identity began there.

    Args:
        build: what to build.
        folder: the folder, as `corpus_folder` yields it.
        identity: differs for all builds that would write something else.
        total: the expected number of documents, for the progress bar.

    Raises:
        UserError: an input cannot be read, no record of a uniform source can be used, or the disk is full.
    """
    progress = _resume(folder, identity)
    with (
        writing(folder),
        # Otherwise a warning would be appended to the progress bar.
        logging_redirect_tqdm(),
        open(folder / CORPUS, "ab") as corpus,
        open(folder / SKIPPED, "ab") as skipped,
        tqdm(desc="corpus", unit=" documents", unit_scale=True, initial=progress.documents, total=total) as bar,
    ):
        output = _Output(build, folder, identity, progress, corpus, skipped, bar)
        for number, item in enumerate(build.source.inputs(build.paths)):
            if number < progress.inputs:
                continue
            if isinstance(item, Skipped):
                output.skip(item)
            else:
                output.read(*item)
            progress.inputs, progress.records = number + 1, 0
            output.sync_in_time()
        output.sync()
    return progress


def _resume(folder: Path, identity: str) -> Progress:
    """The progress of an interrupted build with its output cut to what was synced; else a new one with no output."""
    path = folder / PROGRESS
    progress = Progress()
    try:
        state = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if state.pop("identity", None) == identity:
            progress = Progress(**state)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        logger.warning("%s: cannot be read (%s); the build starts again", path, error)
    for name, size in ((CORPUS, progress.corpus_bytes), (SKIPPED, progress.skipped_bytes)):
        file = folder / name
        if size > (file.stat().st_size if file.exists() else 0):
            # Somebody has shortened it.
            path.unlink(missing_ok=True)
            return _resume(folder, identity)
        with open(file, "ab") as stream:
            stream.truncate(size)
    if progress.documents:
        logger.info("%s: resuming after %s documents", folder, f"{progress.documents:,}")
    return progress


class _Output:
    """The open files of a build and its progress."""

    def __init__(
        self,
        build: Build,
        folder: Path,
        identity: str,
        progress: Progress,
        corpus: IO[bytes],
        skipped: IO[bytes],
        bar: "tqdm[Any]",
    ) -> None:
        self._build, self._folder, self._identity, self._progress = build, folder, identity, progress
        self._corpus, self._skipped, self._bar = corpus, skipped, bar
        self._synced = time.monotonic()
        self._written = _keys(folder / CORPUS, build.is_split) if build.source.has_repeats else set()

    def read(self, name: str, path: Path) -> None:
        """Write the passages of a file, past its finished records."""
        source, progress = self._build.source, self._progress
        for number, (place, record) in enumerate(source.records(name, path)):
            if number < progress.records:
                continue
            try:
                documents = source.parse(place, record)
            except UserError as error:
                self.skip(Skipped(place, str(error).removeprefix(f"{place}: ")))
            else:
                for document in documents:
                    self._add(place, document)
            progress.records = number + 1
            self.sync_in_time()

    def _add(self, place: str, document: Document) -> None:
        progress = self._progress
        self._bar.update()
        key = hash64(document.id) if self._build.source.has_repeats else 0
        if key in self._written:
            progress.repeated += 1
            return
        progress.documents += 1
        page = self._build.page_title(document) if self._build.page_title else ""
        if page is None:
            progress.left_out += 1
            return
        try:
            with time_limit(place):
                passages = list(self._build.split(document))
        except UserError as error:
            self.skip(Skipped(place, str(error).removeprefix(f"{place}: ")))
            return
        if not passages:
            self.skip(Skipped(place, "contains no text"))
        for number, (title, text, origin) in enumerate(passages, start=1):
            id = f"{document.id}#{number}" if self._build.is_split else document.id
            passage: dict[str, Any] = {"id": id, "title": page or title, "text": text}
            if origin:
                passage["origin"] = origin
            self._corpus.write((without_surrogates(jsonl.dumps(passage)) + "\n").encode())
        progress.passages += len(passages)
        if passages and key:
            self._written.add(key)

    def skip(self, item: Skipped) -> None:
        """Report something that could not be used.

        Raises:
            UserError: nothing of a uniform source could be used so far.
        """
        self._progress.skipped += 1
        if self._progress.skipped <= MAX_SHOWN:
            # In quotation marks where a line break or the like would otherwise be shown.
            name = item.name if item.name.isprintable() else repr(item.name)
            logger.warning("%s: %s; skipped", name, item.reason)
        self._skipped.write((jsonl.dumps(dataclasses.asdict(item)) + "\n").encode("utf-8", jsonl.UNENCODABLE))
        if self._build.source.is_uniform and self._progress.skipped >= HOPELESS and not self._progress.passages:
            raise UserError(
                f"{item.name}: {item.reason}; so are all {HOPELESS:,} records before it, check --source and --path"
            )

    def sync_in_time(self) -> None:
        """Sync if the last time was a while ago."""
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Make everything up to here survive a kill."""
        for file in (self._corpus, self._skipped):
            file.flush()
            os.fsync(file.fileno())
        self._progress.corpus_bytes, self._progress.skipped_bytes = self._corpus.tell(), self._skipped.tell()
        state = {"identity": self._identity} | dataclasses.asdict(self._progress)
        jsonl.write_text(self._folder / PROGRESS, [json.dumps(state) + "\n"])
        self._synced = time.monotonic()


def _keys(path: Path, is_split: bool) -> set[int]:
    """The keys of the documents in a corpus."""
    ids = (str(record["id"]) for _, record in jsonl.read(path))
    # A set of numbers takes half the memory of one of strings.
    return {hash64(id.rpartition("#")[0] if is_split else id) for id in ids}


def skip_reasons(folder: Path) -> dict[str, int]:
    """How often each reason occurs in `skipped.jsonl`, most frequent first; what it says of one item is left out."""
    reasons = Counter(str(record["reason"]).partition(" (")[0] for _, record in jsonl.read(folder / SKIPPED))
    return dict(reasons.most_common())
