"""The steps of a paper's table, from an empty folder to its page: they follow from its file and the chosen cells.

Each is a run of a pipeline, with its estimate. A step works in a folder named by its result, so that tables share
corpora, indexes and cells.
"""

import contextlib
import math
import operator
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from notewriter.corpora.published import PUBLISHED
from notewriter.corpora.sources import SOURCES
from notewriter.corpora.sources.per_question import NAME as PER_QUESTION
from notewriter.corpora.splitting import SPLITS
from notewriter.experiments.run import Needs, PipelineRun
from notewriter.fetching.catalogue import corpora, datasets
from notewriter.ground.errors import UserError
from notewriter.ground.plugins import unknown
from notewriter.ground.releases import FETCHED, File, Release
from notewriter.models.checkpoint import Checkpoint, is_hub_id
from notewriter.models.nodes import size_of
from notewriter.models.roles import ModelArguments, models_of
from notewriter.pages.tables import Table
from notewriter.results.cost import DECODE, PREFILL, CellCost, gpu_seconds
from notewriter.results.paper_table import Evaluated, PaperTable, entry_of, indexes_of
from notewriter.retrieval.index_folder import read_manifest
from notewriter.retrieval.published import INDEXES
from notewriter.rollouts.rehearsal import TOKENS_A_WORD

GB = 1e9

WORDS_A_SECOND = 3e6
"""Of documents that `notewriter corpus` reads: the slowest figure of docs/results.md, 32,000 passages of 100 words."""

BM25_SECONDS, BM25_GB, BM25_BYTES = 0.33e-6, 0.2e-6, 9.4
"""A word's seconds on two cores, a passage's memory, and a word's bytes on the disk (docs/results.md, "Indexes")."""

TEXT_BYTES = 6.7
"""A word's bytes in a corpus (docs/results.md: 0.6 GB for a million passages of 90 words)."""

VECTOR_BYTES = 4 * 768
"""A passage's bytes in a flat index, with the encoders of the papers."""

COPIED_A_SECOND = 0.2e9
"""Bytes of published vectors that are read, checked and written: assumed."""

START_HOURS = 0.1
"""Until the servers of a model answer: assumed."""

MEMORY_GB_A_GPU = 60

ASSUMED = (
    "Estimated: corpora and BM25 by rates measured on two cores, models and encoders on A100s at "
    f"{PREFILL:.0%} of their peak for prompts and passages and {DECODE:.0%} for replies (assumed), loops run to their "
    "limits, replies are as long as --reply_share says."
)


@dataclass(frozen=True, kw_only=True)
class EstimatedRun(PipelineRun):
    """A run of a pipeline, with its estimate.

    Args:
        hours: with its needs; None where nothing is known.
        downloads: download -> its bytes; None if they are not known.
        disk: bytes that stay, beside the downloads.
        dollars: of models that are paid by the call.
    """

    hours: float | None = None
    downloads: Mapping[str, float | None] = field(default_factory=dict)
    disk: float = 0
    dollars: float = 0

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of a pipeline's file. Slurm ends a job after twice the estimated hours."""
        needs = vars(self.needs) | {"nodes": None, "hours": self.hours and max(1, math.ceil(2 * self.hours))}
        entry = {
            "title": self.title,
            "command": self.command,
            "result": self.result or [],
            "after": self.after or [],
            "needs": {name: each for name, each in needs.items() if each},
        }
        # Without `after` a run comes after the one before it; without `result` its command has a usual one.
        return {name: each for name, each in entry.items() if each or name != "needs"}


def steps_of(
    table: PaperTable,
    cells: Sequence[Evaluated],
    costs: Mapping[str, CellCost],
    command: Sequence[str],
    *,
    check: bool = True,
) -> list[EstimatedRun]:
    """The steps of some cells, in an order in which they can be done.

    Args:
        table: the table.
        cells: those that can run (`Evaluated.lacks` is empty).
        costs: the cost of each by its folder.
        command: the one that evaluates cells and writes the page, without `--cells`.
        check: whether files that are not the published ones are refused.

    Raises:
        UserError: questions are published nowhere, or an index cannot be made: its corpus, encoder or vectors are
            unknown.
    """
    folders = list(dict.fromkeys(folder for cell in cells for folder in _indexes(table, cell)))
    searched = list(dict.fromkeys(table.indexes[folder].corpus for folder in folders))
    fetched: dict[str, EstimatedRun] = {}
    for step in (
        *(step for cell in cells for step in _dataset(table, cell)),
        *(step for corpus in searched for step in _source(table, corpus)),
        *(step for folder in folders for step in _vectors(table, folder)),
        *(step for cell in cells for step in _models(table, cell)),
    ):
        # One after another: some share a folder, and all share the line.
        after = list(fetched)[-1:]
        checked = step.command if check else f"{step.command} --check false"
        fetched.setdefault(step.title, replace(step, command=checked, after=after))
    made = [_corpus(table, name) for name in searched if not table.file.corpora[name].is_made]
    built = made + [_index(table, folder) for folder in folders]
    by_model: dict[str, list[Evaluated]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, []).append(cell)
    evaluated = [_evaluation(table, some, costs, command) for some in by_model.values()]
    page = EstimatedRun(
        title="write the table",
        command=shlex.join([*command, *_selection(table, cells)]),
        after=[step.title for step in evaluated],
        needs=Needs(cpus=2, memory_gb=8),
    )
    return [*fetched.values(), *built, *evaluated, page]


def _indexes(table: PaperTable, cell: Evaluated) -> list[str]:
    """The folders of the table's own indexes that a cell searches."""
    return [folder for folder in indexes_of(cell.options) if folder in table.indexes]


def _fetch(kind: str, name: str, release: Release, files: Iterable[File], options: Sequence[str] = ()) -> EstimatedRun:
    files = list(files)
    return EstimatedRun(
        title=" ".join(["fetch", kind, name, *options[1::2]]),
        command=shlex.join(["notewriter", "fetch", kind, name, *options]),
        result=[str(release.folder / file.here) for file in files],
        downloads={" ".join(file.addresses): file.size or file.about for file in files},
    )


def _dataset(table: PaperTable, cell: Evaluated) -> Iterator[EstimatedRun]:
    """The questions of a cell; nothing where they are in a file of the user's."""
    if "path" not in cell.options:
        yield _questions(f"{table.path}: benchmarks: {cell.column}", cell.options["dataset"], cell.options.get("split"))


def _questions(place: str, name: str, split: str | None) -> EstimatedRun:
    """The published questions that are named at a place of the file.

    Raises:
        UserError: nobody publishes them, or they have no such split.
    """
    if name not in (published := datasets()):
        raise UserError(f"{place}: {unknown('published dataset', name, published)}; add `path` for a file of yours")
    release = published[name]
    split = split or release.splits[0]
    entry_of(place, f"split of {name}", split, dict.fromkeys(release.splits))
    return _fetch("dataset", name, release, release.of_split(split), ["--split", split])


def _source(table: PaperTable, name: str) -> Iterator[EstimatedRun]:
    """The documents of a corpus; nothing where they are the user's.

    Raises:
        UserError: there is no such source, or it reads what is not named.
    """
    corpus, place = table.file.corpora[name], f"{table.path}: corpora: {name}"
    source = corpus.source or name
    if corpus.is_made:
        return
    if source not in (known := [*SOURCES, PER_QUESTION]):
        raise UserError(f"{place}: {unknown('source', source, known)}; for a corpus.jsonl that is there, `path` alone")
    if (source == PER_QUESTION) != bool(corpus.dataset):
        raise UserError(f"{place}: `source: {PER_QUESTION}` and `dataset` belong together; give both or neither")
    if corpus.split:
        entry_of(place, "split", corpus.split, SPLITS)
    if corpus.path:
        return
    if corpus.dataset:
        yield _questions(place, corpus.dataset, corpus.questions)
    elif release := corpora().get(source):
        yield _fetch("corpus", source, release, release.files)
    else:
        raise UserError(f"{place}: source {source!r} reads files of yours; add their `path`")


def _vectors(table: PaperTable, folder: str) -> Iterator[EstimatedRun]:
    if name := table.indexes[folder].vectors:
        release = entry_of(f"{table.path}: indexes: {folder}", "published index", name, INDEXES)
        yield _fetch("index", name, release, release.files)


def missing(table: PaperTable, cells: Sequence[Evaluated]) -> list[str]:
    """Missing inputs of cells that no step makes: each with its key, a cell and the remedy.

    That is: question files, indexes, documents and model folders of the user's.
    """
    found: dict[str, str] = {}
    for cell in cells:
        path = cell.options.get("path", FETCHED)
        if path != FETCHED and not Path(path).exists():
            found.setdefault(f"path: {path}: is not there", f"{cell.name}; check the path")
        for folder in indexes_of(cell.options):
            if folder in table.indexes:
                corpus = table.file.corpora[table.indexes[folder].corpus]
                if corpus.path and not Path(corpus.path).exists():
                    place = f"corpora: {table.indexes[folder].corpus}: path: {corpus.path}: is not there"
                    found.setdefault(place, "check the path")
            elif read_manifest(folder) is None:
                remedy = f"`notewriter index --path CORPUS.jsonl --index {folder}` builds it, or its entry in `indexes`"
                found.setdefault(f"index: {folder}: is not there", f"{cell.name}; {remedy}")
        for name in _served(table, cell):
            try:
                if not is_hub_id(name) and not Checkpoint(name).is_adapter:
                    Checkpoint(name).check()
            except UserError as error:
                found.setdefault(f"serve: {error}", cell.name)
    return [f"{what} ({whose})" for what, whose in found.items()]


def _models(table: PaperTable, cell: Evaluated) -> Iterator[EstimatedRun]:
    """The encoders, rerankers and served models of a cell, as far as they are on the Hub."""
    encoders = [table.indexes[folder].encoder for folder in _indexes(table, cell)]
    rerankers = [part.get("rerank") for part in cell.options.get("retriever") or []]
    sizes = {
        name: table.file.encoders[name].gigabytes if name in table.file.encoders else None
        for name in [*encoders, *rerankers]
        if name
    }
    for name, billions in _served(table, cell).items():
        # Two bytes a parameter.
        sizes[name] = 2 * billions if billions else None
    for name, gigabytes in sizes.items():
        if is_hub_id(name):
            yield EstimatedRun(
                title=f"fetch model {name}",
                command=shlex.join(["notewriter", "fetch", "model", name]),
                result=_cached(name),
                downloads={name: gigabytes and gigabytes * GB},
            )


def _cached(name: str) -> list[str]:
    """A file of a model that is complete in the Hub's cache; none of one that is not."""
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(name, "config.json")
    with contextlib.suppress(UserError):
        if isinstance(file, str):
            Checkpoint(Path(file).parent).check()
            return [file]
    return []


def _served(table: PaperTable, cell: Evaluated) -> dict[str, float | None]:
    """The models that are served for a cell, with their parameters in billions, if these are known."""
    plays = [cell.plays, *([cell.judge.plays] if cell.judge else [])]
    return {
        each.serve: None if table.substitutes.model else model.billions_of(role)
        for model, arguments in zip(plays, cell.asked, strict=True)
        for role, each in models_of(arguments).items()
        if each.serve
    }


def _gpus(cell: Evaluated) -> int:
    """The GPUs of the servers of a cell; the judge's start when the others have ended."""

    def of_servers(arguments: ModelArguments) -> int:
        served = {each.serve: each for each in models_of(arguments).values() if each.serve}
        sizes = [size_of(arguments.serve_options | each.serve_options) for each in served.values()]
        replicas = [each.replicas or arguments.replicas for each in served.values()]
        return sum(map(operator.mul, sizes, replicas))

    return max(map(of_servers, cell.asked))


def _passages(table: PaperTable, name: str) -> int:
    """How many passages a corpus has.

    Raises:
        UserError: nobody states it.
    """
    corpus = table.file.corpora[name]
    if corpus.passages:
        return corpus.passages
    if corpus.path:
        files = [Path(corpus.path), *Path(corpus.path).rglob("*")]
        return math.ceil(sum(file.stat().st_size for file in files if file.is_file()) / TEXT_BYTES / corpus.words)
    if name not in PUBLISHED:
        raise UserError(
            f"{table.path}: corpora: {name}: has no `passages`, and no published number is known; add an estimate"
        )
    return PUBLISHED[name].documents


def _command(name: str, options: Mapping[str, object]) -> str:
    """A command with the options that are given."""
    given = ((f"--{option}", str(value)) for option, value in options.items() if value is not None)
    return shlex.join(["notewriter", name, *(word for each in given for word in each)])


def _corpus(table: PaperTable, name: str) -> EstimatedRun:
    corpus, folder = table.file.corpora[name], f"{table.corpora_folder}/{name}"
    words = _passages(table, name) * corpus.words
    options = {key: getattr(corpus, key) for key in ("dataset", "path", "split", "size", "tokenizer")}
    return EstimatedRun(
        title=f"make corpus {name}",
        command=_command("corpus", {"source": corpus.source or name, **options, "output_dir": folder}),
        after=[step.title for step in _source(table, name)],
        # The user's own documents may be others by now, as the command can tell.
        result=[] if corpus.path else [f"{folder}/manifest.json"],
        needs=Needs(cpus=2, memory_gb=4),
        hours=words / WORDS_A_SECOND / 3600,
        disk=words * TEXT_BYTES,
    )


def _index_title(table: PaperTable, folder: str) -> str:
    """The title of the step that builds an index: with its folder's name, or its path where two have that name."""
    names = [Path(each).name for each in table.indexes]
    name = Path(folder).name
    return f"index {name if names.count(name) == 1 else folder}"


def _index(table: PaperTable, folder: str) -> EstimatedRun:
    index = table.indexes[folder]
    corpus = table.file.corpora[index.corpus]
    passages, words = _passages(table, index.corpus), corpus.words
    path = corpus.path if corpus.is_made else f"{table.corpora_folder}/{index.corpus}/corpus.jsonl"
    options = {"path": path, "index": folder, "encoder": index.encoder}
    after = [] if corpus.is_made else [f"make corpus {index.corpus}"]
    if index.encoder is None:
        needs = Needs(cpus=2, memory_gb=math.ceil(1 + passages * BM25_GB))
        hours, disk = passages * words * BM25_SECONDS / 3600, passages * words * BM25_BYTES
    else:
        options |= {"query_prompt": index.query_prompt, "vectors": index.vectors}
        after += [f"fetch model {index.encoder}"] if is_hub_id(index.encoder) else []
        after += [f"fetch index {index.vectors}"] if index.vectors else []
        disk = passages * (VECTOR_BYTES + words * TEXT_BYTES)
        if index.vectors:
            needs, hours = Needs(cpus=4, memory_gb=16), disk / COPIED_A_SECOND / 3600
        else:
            place = f"{table.path}: indexes: {folder}"
            billions = entry_of(place, "encoder", index.encoder, table.file.encoders).billions
            hours = gpu_seconds(passages * words * TOKENS_A_WORD, 0, billions) / 3600
            needs = Needs(gpus=8 if hours > 8 else 1)
            hours /= needs.gpus
    return EstimatedRun(
        title=_index_title(table, folder),
        command=_command("index", options),
        after=after,
        result=[] if corpus.path else [f"{folder}/manifest.json"],
        needs=needs,
        hours=hours,
        disk=disk,
    )


def _evaluation(
    table: PaperTable, cells: Sequence[Evaluated], costs: Mapping[str, CellCost], command: Sequence[str]
) -> EstimatedRun:
    """The cells of one model, which share a server."""
    folders = [folder for cell in cells for folder in _indexes(table, cell)]
    needed = [step.title for cell in cells for step in (*_dataset(table, cell), *_models(table, cell))]
    needed += [_index_title(table, folder) for folder in folders]
    gpus = max(map(_gpus, cells))
    # An exact search reads all vectors, which should stay in memory.
    dense = [_passages(table, table.indexes[folder].corpus) for folder in folders if table.indexes[folder].encoder]
    memory_gb = math.ceil(16 + max(dense, default=0) * VECTOR_BYTES / GB)
    paid = list({cell.folder: costs[cell.folder] for cell in cells}.values())
    # With a judgement begun, nothing but its command tells whether it is finished.
    results = [] if any(cell.judge for cell in cells) else cells
    return EstimatedRun(
        title=f"evaluate {cells[0].model}",
        command=shlex.join([*command, *_selection(table, cells), "--page", "false"]),
        after=list(dict.fromkeys(needed)),
        result=[f"{folder}/metrics.json" for cell in results for folder in cell.folders.values()],
        needs=Needs(gpus=gpus, memory_gb=max(MEMORY_GB_A_GPU * gpus, memory_gb)),
        hours=START_HOURS + sum(cost.gpu_hours for cost in paid) / gpus if gpus else None,
        dollars=sum(cost.money for cost in paid),
    )


def _selection(table: PaperTable, cells: Sequence[Evaluated]) -> list[str]:
    """The option that selects these cells of a table, by a pattern for each model and, if it must be, benchmark."""
    patterns: list[str] = []
    for model in dict.fromkeys(cell.model for cell in cells):
        names = {cell.name: cell.column for cell in cells if cell.model == model}
        by_benchmark = [f"{benchmark}/*/{model}" for benchmark in dict.fromkeys(names.values())]
        choices = ([f"*/{model}"], by_benchmark)
        patterns += next((each for each in choices if table.fitting(each) == names.keys()), names)
    return ["--cells", *patterns] if len(cells) < len(table.cells) else []


def plan(steps: Sequence[EstimatedRun]) -> Table:
    """The steps with their estimates, as a table."""
    header = ["step", "CPUs", "memory, GB", "GPUs", "hours", "download, GB", "disk, GB", "dollars"]
    rows = [
        [
            step.title + ("" if step.missing() else " (finished)"),
            str(step.needs.cpus or ""),
            str(step.needs.memory_gb or ""),
            str(step.needs.gpus or ""),
            "" if step.hours is None else f"{step.hours:.2f}",
            _gigabytes(step.downloads.values()),
            _gigabytes([*step.downloads.values(), *filter(None, [step.disk])]),
            f"{step.dollars:,.2f}" if step.dollars else "",
        ]
        for step in steps
    ]
    return "", header, rows


def sums(steps: Sequence[EstimatedRun]) -> str:
    """The sums of the unfinished steps' estimates, a line each."""
    left = [step for step in steps if step.missing()]
    # Two steps may need one file.
    downloads = {name: size for step in left for name, size in step.downloads.items()}
    size = sum(filter(None, downloads.values()))
    unknown = [step.title for step in left if None in step.downloads.values()]
    more = f", and what is not known: {', '.join(unknown)}" if unknown else ""
    return (
        f"to be done: {len(left)} of {len(steps)} steps\n"
        f"to download: {size / GB:,.1f} GB{more}\n"
        f"on the disk: {(size + sum(step.disk for step in left)) / GB:,.1f} GB\n"
        f"GPU hours: {sum(step.needs.gpus * (step.hours or 0) for step in left):,.1f}\n"
        f"hours, one step after another, without downloads: {sum(step.hours or 0 for step in left):,.1f}\n"
        f"dollars for models that are paid by the call: {sum(step.dollars for step in left):,.2f}\n{ASSUMED}\n"
    )


def _gigabytes(sizes: Iterable[float | None]) -> str:
    sizes = list(sizes)
    if None in sizes:
        return "?"
    return f"{sum(filter(None, sizes)) / GB:,.2f}" if sizes else ""
