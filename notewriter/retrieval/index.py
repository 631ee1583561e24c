"""`notewriter index`: build an index of a corpus, BM25 or dense; add passages to it and delete some."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tqdm import tqdm

from notewriter.artifacts.run_record import add_start, start_of
from notewriter.datasets import BENCHMARKS, load_corpus
from notewriter.ground import config
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25, corpus_fingerprint, dense, encoders, read_manifest


@dataclass(slots=True)
class IndexArguments:
    """The corpus and the index to build."""

    index: str = field(metadata={"help": "the index folder; an index of another corpus there is replaced"})
    path: str | None = field(
        default=None,
        metadata={
            "help": "the corpus: corpus.jsonl, or a benchmark's own file with paragraphs; required except with --delete"
        },
    )
    dataset: str = field(default="jsonl", metadata={"help": f"the format of the corpus: {', '.join(BENCHMARKS)}"})
    add: bool = field(default=False, metadata={"help": "add the passages to the BM25 index that is there"})
    delete: str | None = field(
        default=None, metadata={"help": "a file of ids, one a line; delete these passages from the BM25 index"}
    )
    share: str | None = field(
        default=None,
        metadata={"help": "another index of the same corpus, whose passages are then on disk once (hard links)"},
    )


PROG = "notewriter index"


def main(argv: list[str]) -> None:
    """Build or change an index, unless the folder already contains one of the same corpus and settings.

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
    config.choose("dataset", arguments.dataset, BENCHMARKS)
    if arguments.delete is not None and (arguments.path or arguments.add):
        raise UserError("--delete deletes from an index and takes no corpus; leave out --path and --add")
    if arguments.path is None and arguments.delete is None:
        raise UserError("the following arguments are required: --path; see --help")
    kind = "dense" if encoder.encoder else "bm25"
    if kind == "bm25" and encoder != encoders.Encoder():
        raise UserError("encoder options are set but no encoder; add --encoder MODEL or leave them out")
    if kind == "dense" and analysis != bm25.Analysis():
        raise UserError("analyzer and title_boost are those of BM25; leave them out of a dense index")
    # A forgotten option must not replace an index that took hours to embed.
    if (other := (read_manifest(arguments.index) or {}).get("kind", kind)) != kind:
        raise UserError(f"{arguments.index}: contains a {other} index; choose another --index or remove this one")
    if kind == "dense" and (arguments.add or arguments.delete):
        raise UserError(f"{arguments.index}: a dense index cannot be changed; build one of the whole corpus")
    if (arguments.add or arguments.delete) and (arguments.share or analysis != bm25.Analysis()):
        raise UserError("analyzer, title_boost and share are set when an index is built; leave them out")
    before = read_manifest(arguments.index)
    done = _run(arguments, analysis, encoder)
    # Neither for an index that was left as it is, possibly read-only, nor for a shard's folder, not an index yet.
    if read_manifest(arguments.index) != before:
        add_start(Path(arguments.index), start_of(asdict(arguments), {}, config.command_line(PROG, argv)))
    sys.stdout.write(f"{arguments.index}: {done}\n")


def _run(arguments: IndexArguments, analysis: bm25.Analysis, encoder: encoders.Encoder) -> str:
    """Do what the arguments say; returns what was done."""
    index = arguments.index
    if arguments.delete is not None:
        # Read whole before anything changes.
        ids = list(_ids(arguments.delete))
        left = bm25.delete(ids, index, f"without {corpus_fingerprint('ids', arguments.delete)}")
        return f"deleted {len(ids)} passages, {left} are left"
    source = corpus_fingerprint(arguments.dataset, str(arguments.path))
    if arguments.add:
        # Before the last deletion it may have been added and deleted.
        since = str((read_manifest(index) or {}).get("source", "")).rpartition("+without ")[2]
        if source in since.split("+"):
            return "already contains this corpus"
        with _passages(arguments) as passages:
            return f"contains {bm25.add(passages, index, source)} passages now"
    if arguments.share is not None and str((read_manifest(arguments.share) or {}).get("source")) != source:
        raise UserError(f"{arguments.share}: is not an index of {arguments.path}; share the passages of one that is")
    if encoder.encoder is None:
        if bm25.is_current(index, source, analysis=analysis):
            return "already an index of this corpus"
        with _passages(arguments) as passages:
            count = bm25.build(passages, index, source, analysis=analysis, share=arguments.share)
        return f"indexed {count} passages"
    if encoder.shard is not None:
        with _passages(arguments) as passages:
            count = dense.embed_shard(passages, index, source, options=encoder)
        return f"embedded {count} passages as shard {encoder.shard}; run without --shard when all are there"
    if dense.is_current(index, source, options=encoder):
        return "already an index of this corpus"
    with _passages(arguments) as passages:
        count = dense.build(passages, index, source, options=encoder, share=arguments.share)
    return f"indexed {count} passages; {dense.structure_of(index)}"


def _passages(arguments: IndexArguments) -> "tqdm[Passage]":
    """The corpus with a progress bar, which ends its line when closed, also after an error elsewhere."""
    passages = load_corpus(arguments.dataset, str(arguments.path))
    return tqdm(passages, desc="index", unit=" passages", unit_scale=True)


def _ids(path: str) -> Iterator[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
    ids = dict.fromkeys(filter(None, map(str.strip, lines)))
    if not ids:
        raise UserError(f"{path}: contains no ids; write one a line")
    yield from ids
