"""`notewriter index`: build an index of a corpus, BM25 or dense."""

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tqdm import tqdm

from notewriter.artifacts.run_record import add_start, start_of
from notewriter.datasets import BENCHMARKS, load_corpus, question_file
from notewriter.datasets.questions import SPLIT
from notewriter.ground import config
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_in, option
from notewriter.ground.records import Passage
from notewriter.ground.releases import FETCHED
from notewriter.retrieval import bm25, dense, encoders
from notewriter.retrieval.index_folder import read_manifest

PROG = "notewriter index"

CORPUS = "corpus"
"""The split of a published file that has passages only."""


@dataclass(slots=True)
class IndexArguments:
    """The corpus and the index to build."""

    index: str = field(metadata={"help": "the index folder; an index of another corpus there is replaced"})
    path: str = option(
        FETCHED,
        "the corpus: corpus.jsonl, or a benchmark's own file with paragraphs; without it, the one that "
        "`notewriter fetch dataset` got",
    )
    dataset: str = option(
        "jsonl", f"the format of the corpus: {', '.join(BENCHMARKS)}", plugins=BENCHMARKS, names=names_in
    )
    split: str | None = field(default=None, metadata=SPLIT)


def main(argv: list[str]) -> None:
    """Build an index, unless the folder already contains one of the same corpus and settings.

    Raises:
        UserError: the dataset is unknown, the corpus cannot be read, the encoder cannot be loaded, or the folder
            exists and is not an index of this kind.
    """
    arguments, analysis, encoder = config.parse(
        (IndexArguments, bm25.Analysis, encoders.Encoder),
        argv,
        prog=PROG,
        description="Build an index, BM25 or, with --encoder, dense. It contains the passages.",
    )
    arguments.path, arguments.split = _corpus_file(arguments), None
    kind = "dense" if encoder.encoder else "bm25"
    if kind == "bm25" and encoder != encoders.Encoder():
        raise UserError("encoder options are set but no encoder; add --encoder MODEL or leave them out")
    if kind == "dense" and analysis != bm25.Analysis():
        raise UserError("analyzer and title_boost are those of BM25; leave them out of a dense index")
    before = read_manifest(arguments.index) or {}
    # A forgotten option must not replace an index that took hours to embed.
    if (other := before.get("kind", kind)) != kind:
        raise UserError(f"{arguments.index}: contains a {other} index; choose another --index or remove this one")
    outcome = _build(arguments, analysis, encoder)
    # An index that was left as it is may be read-only.
    if read_manifest(arguments.index) != before:
        add_start(Path(arguments.index), start_of(asdict(arguments), {}, config.command_line(PROG, argv)))
    sys.stdout.write(f"{arguments.index}: {outcome}\n")


def _corpus_file(arguments: IndexArguments) -> str:
    """The given corpus, or else the fetched one; some benchmarks have their passages in a file of their own."""
    release = config.choose("dataset", arguments.dataset, BENCHMARKS).source
    has_corpus = arguments.path == FETCHED and release is not None and CORPUS in release.splits
    return question_file(arguments.dataset, arguments.path, arguments.split or (CORPUS if has_corpus else None))


def _build(arguments: IndexArguments, analysis: bm25.Analysis, encoder: encoders.Encoder) -> str:
    """Build the index if need be; returns a summary."""
    index, source = arguments.index, corpus_fingerprint(arguments.dataset, arguments.path)
    if encoder.encoder is None:
        if bm25.is_current(index, source, analysis=analysis):
            return "already an index of this corpus"
        with _passages(arguments) as passages:
            return f"indexed {bm25.build(passages, index, source, analysis=analysis)} passages"
    if dense.is_current(index, source, options=encoder):
        return "already an index of this corpus"
    with _passages(arguments) as passages:
        count = dense.build(passages, index, source, options=encoder)
    return f"indexed {count} passages; {dense.structure_of(index)}; {dense.texts_of(index)}"


def _passages(arguments: IndexArguments) -> "tqdm[Passage]":
    """The corpus with a progress bar, which ends its line when closed, also after an error elsewhere."""
    passages = load_corpus(arguments.dataset, arguments.path)
    return tqdm(passages, desc="index", unit=" passages", unit_scale=True)


def corpus_fingerprint(dataset: str, path: str | Path) -> str:
    """The format and SHA-256 of a corpus file, to identify what an index is built from.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        return f"{dataset}:{file_digest(path)}"
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error
