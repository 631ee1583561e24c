"""`notewriter index`: build an index of a corpus, BM25 or dense."""

import hashlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tqdm import tqdm

from notewriter import config
from notewriter.benchmarks import BENCHMARKS, load_corpus
from notewriter.errors import UserError
from notewriter.records import Passage
from notewriter.retrieval import bm25, dense, read_manifest


@dataclass(slots=True)
class IndexArguments:
    """The corpus and the index to build."""

    path: str = field(metadata={"help": "the corpus: corpus.jsonl, or a benchmark's own file with paragraphs"})
    index: str = field(metadata={"help": "the index folder; an index of another corpus there is replaced"})
    dataset: str = field(default="jsonl", metadata={"help": f"the format of the corpus: {', '.join(BENCHMARKS)}"})


def main(argv: list[str]) -> None:
    """Build the index unless the folder already contains one of the same corpus.

    Raises:
        UserError: the dataset is unknown, the corpus cannot be read, the encoder cannot be loaded, or the folder
            exists and is not an index of this kind.
    """
    arguments, encoder = config.parse(
        (IndexArguments, dense.Encoder),
        argv,
        prog="notewriter index",
        description="Build an index, BM25 or, with --encoder, dense. It contains the passages.",
    )
    config.choose("dataset", arguments.dataset, BENCHMARKS)
    kind = "dense" if encoder.encoder else "bm25"
    if kind == "bm25" and encoder != dense.Encoder():
        raise UserError("encoder options are set but no encoder; add --encoder MODEL or leave them out")
    # A forgotten option must not replace an index that took hours to embed.
    if (other := (read_manifest(arguments.index) or {}).get("kind", kind)) != kind:
        raise UserError(f"{arguments.index}: contains a {other} index; choose another --index or remove this one")
    source = fingerprint(arguments.dataset, arguments.path)
    is_current: Callable[[str, str], bool] = bm25.is_current
    build: Callable[[Iterable[Passage], str, str], int] = bm25.build
    if kind == "dense":
        is_current, build = partial(dense.is_current, options=encoder), partial(dense.build, options=encoder)
    if is_current(arguments.index, source):
        sys.stdout.write(f"{arguments.index}: already an index of this corpus\n")
        return
    passages = load_corpus(arguments.dataset, arguments.path)
    with tqdm(passages, desc="index", unit=" passages", unit_scale=True) as bar:
        count = build(bar, arguments.index, source)
    sys.stdout.write(f"{arguments.index}: indexed {count} passages\n")


def fingerprint(dataset: str, path: str | Path) -> str:
    """The format and SHA-256 of a corpus file, to identify what an index is built from.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return f"{dataset}:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error
