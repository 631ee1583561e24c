"""`notewriter index`: build a BM25 index of a corpus."""

import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from notewriter import config
from notewriter.datasets import DATASETS, load_corpus
from notewriter.errors import UserError
from notewriter.retrieval import bm25


@dataclass(slots=True)
class Arguments:
    """What `notewriter index` can be told."""

    path: str = field(metadata={"help": "the corpus: corpus.jsonl, or a benchmark's own file with paragraphs"})
    index: str = field(metadata={"help": "the folder to build the index in; one of another corpus is replaced"})
    dataset: str = field(default="jsonl", metadata={"help": f"the format of the corpus: {', '.join(DATASETS)}"})


def main(argv: list[str]) -> None:
    """Build the index, unless the folder holds one of the same corpus.

    Raises:
        UserError: an unknown dataset, a corpus that cannot be read, a folder that is there and is no index.
    """
    (arguments,) = config.parse(
        Arguments, argv, prog="notewriter index", description="Build a BM25 index, which holds the passages too."
    )
    config.choose("dataset", arguments.dataset, DATASETS)
    source = fingerprint(arguments.dataset, arguments.path)
    if bm25.is_current(arguments.index, source):
        sys.stdout.write(f"{arguments.index}: this corpus is indexed there already\n")
        return
    passages = tqdm(load_corpus(arguments.dataset, arguments.path), desc="index", unit=" passages", unit_scale=True)
    count = bm25.build(passages, arguments.index, source)
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
