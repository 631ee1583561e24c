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
class Arguments:
    """What `notewriter index` can be told."""

    path: str = field(metadata={"help": "the corpus: corpus.jsonl, or a benchmark's own file with paragraphs"})
    index: str = field(metadata={"help": "the folder to build the index in; one of another corpus is replaced"})
    dataset: str = field(default="jsonl", metadata={"help": f"the format of the corpus: {', '.join(BENCHMARKS)}"})


def main(argv: list[str]) -> None:
    """Build the index, unless the folder holds one of the same corpus.

    Raises:
        UserError: an unknown dataset, a corpus that cannot be read, an encoder that cannot be loaded, a folder that
            is there and is no index of this kind.
    """
    arguments, encoder = config.parse(
        [Arguments, dense.Encoder],
        argv,
        prog="notewriter index",
        description="Build an index, BM25 or, with --encoder, dense. It holds the passages too.",
    )
    config.choose("dataset", arguments.dataset, BENCHMARKS)
    kind = "dense" if encoder.encoder else "bm25"
    if kind == "bm25" and encoder != dense.Encoder():
        raise UserError("options of an encoder are given and no encoder; add --encoder MODEL or leave them out")
    # An index that took hours to embed is not lost to a forgotten option.
    if (other := (read_manifest(arguments.index) or {}).get("kind", kind)) != kind:
        raise UserError(f"{arguments.index}: holds a {other} index; choose another --index, or remove this one")
    source = fingerprint(arguments.dataset, arguments.path)
    is_current: Callable[[str, str], bool] = bm25.is_current
    build: Callable[[Iterable[Passage], str, str], int] = bm25.build
    if kind == "dense":
        is_current, build = partial(dense.is_current, options=encoder), partial(dense.build, options=encoder)
    if is_current(arguments.index, source):
        sys.stdout.write(f"{arguments.index}: this corpus is indexed there already\n")
        return
    passages = load_corpus(arguments.dataset, arguments.path)
    with tqdm(passages, desc="index", unit=" passages", unit_scale=True) as bar:
        count = build(bar, arguments.index, source)
    sys.stdout.write(f"{arguments.index}: indexed {count} passages\n")


def fingerprint(dataset: str, path: str | Path) -> str:
    """The name of the format and the SHA-256 of the file: what an index is built from.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return f"{dataset}:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error
