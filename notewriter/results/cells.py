"""The runs of a table's cells: ordinary run folders, evaluated and judged where that is missing."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from notewriter.artifacts.journal import ResumeArguments
from notewriter.artifacts.metrics import Metrics
from notewriter.artifacts.run_folder import questions_digest
from notewriter.artifacts.run_record import check_inputs, read_inputs
from notewriter.corpora.published import PUBLISHED
from notewriter.corpora.writing import read_manifest as read_corpus_manifest
from notewriter.evaluation.evaluating import Evaluation, checked, run
from notewriter.evaluation.judging import judge
from notewriter.evaluation.metrics import FAMILIES
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_of
from notewriter.models.prices import CostArguments
from notewriter.models.roles import ModelArguments
from notewriter.models.servers import keep
from notewriter.results.paper_table import SEARCHED, Evaluated, PaperTable, indexes_of
from notewriter.retrieval.index_folder import read_manifest
from notewriter.rollouts.identity import contents

logger = logging.getLogger(__name__)

TOLERANCE = 0.01
"""The share of its passages by which an index of the same corpus may differ.

Repeated paragraphs, which IRCoT counts, are in an index once, and a malformed line is not in it.
"""


def run_cells(
    table: PaperTable, cells: Sequence[Evaluated], resume: ResumeArguments, command: Sequence[str] = ()
) -> dict[str, str]:
    """Evaluate and judge the cells that lack it, one model after another.

    All inputs are checked first. Cells that lack something are left out, and those that fail do not stop the others.

    Returns the reasons of the cells that failed, by `Evaluated.folder`.
    """
    failed: dict[str, str] = {}

    @contextlib.contextmanager
    def attempt(cell: Evaluated) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            logger.error("%s failed: %s", cell.name, error)
            failed[cell.folder] = str(error)

    warned: set[tuple[str, str]] = set()
    waiting: list[tuple[Evaluated, Evaluation]] = []
    runs: dict[Path, Evaluated] = {}
    for cell in cells:
        if cell.lacks:
            logger.warning("%s is skipped: %s", cell.name, cell.lacks)
            continue
        with attempt(cell):
            other = other_corpus(cell)
            if other and (cell.column, other) not in warned:
                warned.add((cell.column, other))
                logger.warning("the table is about %s; %s searches %s", corpus_of(cell), cell.name, other)
            for number, folder in cell.folders.items():
                if folder in runs:
                    continue
                runs[folder] = cell
                # A sample after the first has draws of its own, so replies of its own to the same prompts.
                cache = table.output / ("cache.sqlite" if number == 1 else f"cache-sample{number}.sqlite")
                evaluation = checked(*cell.arguments(folder, cache))
                # A metric family of somebody else's may be another one now, and scoring asks no model.
                is_ours = evaluation.family in FAMILIES.ours
                if resume.retry_errors or not (is_ours and _is_finished(folder, evaluation)):
                    waiting.append((cell, evaluation))
    with keep(table.output / "logs"):
        models = list(dict.fromkeys(_model_of(evaluation) for _, evaluation in waiting))
        waiting.sort(key=lambda each: models.index(_model_of(each[1])))
        for number, (cell, evaluation) in enumerate(waiting, start=1):
            if cell.folder not in failed:
                with attempt(cell):
                    metrics = run(evaluation, resume, command=command)
                    logger.info("[%d/%d] %s", number, len(waiting), _summary(metrics))
        judged = [(folder, cell, cell.judge) for folder, cell in runs.items() if cell.judge]
        for folder, cell, by in sorted(judged, key=lambda run: repr(run[2].options)):
            if cell.folder not in failed:
                with attempt(cell):
                    reached = by.models(table.output / "cache.sqlite")
                    judge([folder], by.judgements, reached, resume, CostArguments(), command=command)
    return failed


def _model_of(evaluation: Evaluation) -> str:
    return repr([getattr(evaluation.models, name) for name in sorted(names_of(ModelArguments, of="model"))])


def _is_finished(folder: Path, evaluation: Evaluation) -> bool:
    """Whether a run folder has the metrics of these questions; the settings need no check, as its name is their hash.

    Raises:
        UserError: a model, an index or prompts have changed since.
    """
    if not (folder / "metrics.json").exists():
        return False
    check_inputs(folder, contents(evaluation.config))
    return read_inputs(folder).get("questions") == questions_digest(evaluation.questions)


def _summary(metrics: Metrics) -> str:
    scores = ", ".join(f"{name} {interval.mean:.3f}" for name, interval in list(metrics.metrics.items())[:3])
    return f"{metrics.name}: {metrics.questions} questions, {metrics.errors} errors, {scores}"


def other_corpus(cell: Evaluated, *, sizes: bool = True) -> str:
    """The corpus or retriever of a cell in place of the table's; empty if it has these.

    Args:
        sizes: whether an index with another number of passages than the published corpus counts as another.

    Raises:
        UserError: the manifest of an index cannot be read.
    """
    if cell.searched is None:
        return ""
    published = PUBLISHED.get(cell.searched.corpus)
    indexes = [manifest for folder in indexes_of(cell.options) if (manifest := read_manifest(folder))]
    if not indexes:
        return "corpus not counted" if any(cell.options.get(key) for key in SEARCHED) else ""
    for manifest in indexes:
        passages = int(manifest.get("passages", 0))
        if sizes and published and abs(passages - published.documents) > TOLERANCE * published.documents:
            return f"another corpus: {passages:,} passages"
    retrievers = [_retriever(each.get("encoder")) for each in indexes]
    return "" if _retriever(cell.searched.encoder) in retrievers else f"another retriever: {', '.join(retrievers)}"


def _retriever(encoder: object) -> str:
    """`BM25`, or the encoder's name."""
    return Path(str(encoder)).name if encoder else "BM25"


def check_searched(table: PaperTable, cells: Sequence[Evaluated], *, sizes: bool = True) -> None:
    """Check that the corpora and indexes that are there already, and would not be made again, are those of the table.

    Args:
        sizes: whether an index must have the published number of passages; of other files it has not.

    Raises:
        UserError: an index has another number of passages or another retriever than the table is about, or a corpus
            other documents; or their manifests cannot be read.
    """
    remedy = "move it away, or put those of the table elsewhere with --set indexes=FOLDER corpora=FOLDER"
    for cell in cells:
        for folder in (folder for folder in indexes_of(cell.options) if folder in table.indexes):
            index = read_manifest(folder)
            if index and (other := other_corpus(cell, sizes=sizes)):
                raise UserError(f"{folder}: is {other}; the table searches {corpus_of(cell)}; {remedy}")
            name = table.indexes[folder].corpus
            if table.file.corpora[name].path:
                # Of the user's own documents its steps are done again, as far as they have changed.
                continue
            made = Path(table.corpora_folder) / name
            there = read_corpus_manifest(made)
            source = table.file.corpora[name].source or name
            if there and (found := there.get("settings", {}).get("source")) != source:
                raise UserError(f"{made}: has documents of {found}; the table searches {source}; {remedy}")
            if there and index and there.get("passages") != index.get("passages"):
                raise UserError(
                    f"{folder}: has {index.get('passages')} passages, and its corpus {made} {there.get('passages')}; "
                    "remove the index, which is then built again"
                )


def corpus_of(cell: Evaluated) -> str:
    """The corpus that the cell should search, in words; empty where none is stated."""
    if cell.searched is None:
        return ""
    published = PUBLISHED.get(cell.searched.corpus)
    size = f", {published.documents:,} passages" if published else ""
    return f"{cell.searched.corpus}{size}, by {_retriever(cell.searched.encoder)}"
