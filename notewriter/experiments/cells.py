"""The runs of a table's cells: each an ordinary run folder, evaluated and judged as far as that is missing."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from notewriter.artifacts.fingerprints import check_fingerprints, fingerprints
from notewriter.artifacts.journal import ResumeArguments
from notewriter.artifacts.metrics import Metrics
from notewriter.artifacts.run_folder import questions_digest, read_digest
from notewriter.evaluation.evaluation import Evaluation, checked, evaluate
from notewriter.evaluation.judging import judge
from notewriter.experiments.tables.corpora import corpus_of_table, other_corpus
from notewriter.experiments.tables.files import Cell, Table
from notewriter.experiments.tables.values import Finished
from notewriter.ground.errors import UserError
from notewriter.models.prices import CostArguments
from notewriter.models.roles import ModelArguments, Roles, served_models

logger = logging.getLogger(__name__)

ASKED = (
    "serve",
    "serve_options",
    "port",
    "base_url",
    "served",
    "model",
    "models",
    "chat_template_kwargs",
    "parameters",
    "replicas",
    "concurrency",
)
"""The options that decide which servers run, how many requests they get at once, and what is in every request."""


def _asked(models: ModelArguments) -> str:
    return repr([getattr(models, name) for name in ASKED])


class KeptServers:
    """Serves models like `served_models`, but keeps the servers for the next run that asks the same models."""

    def __init__(self, logs: Path) -> None:
        """`logs` is where the servers' logs go."""
        self._logs = logs
        self._running = contextlib.ExitStack()
        self._key = ""
        self._roles: Roles = {}
        self._refused: dict[str, str] = {}

    @contextlib.contextmanager
    def __call__(self, models: ModelArguments, log_dir: Path) -> Iterator[Roles]:
        """The roles of the models; their servers go on running when the block ends.

        Raises:
            UserError: a server does not start; it is not tried again for the cells that need it too.
        """
        key = _asked(models)
        if key in self._refused:
            raise UserError(self._refused[key])
        if key != self._key:
            self.close()
            self._logs.mkdir(parents=True, exist_ok=True)
            try:
                self._roles = self._running.enter_context(served_models(models, self._logs))
            except UserError as error:
                self._refused[key] = str(error)
                raise
            self._key = key
        yield self._roles

    def close(self) -> None:
        """Stop the servers."""
        self._key = ""
        self._running.close()


def folders(table: Table, output: Path, cell: Cell) -> list[Path]:
    """The run folders of a cell's samples."""
    root = output / "cells" / cell.folder
    return [root, *(root.with_name(f"{root.name}-sample{n}") for n in range(2, table.content.samples + 1))]


def run_cells(table: Table, cells: Sequence[Cell], output: Path, resume: ResumeArguments) -> dict[str, str]:
    """Evaluate and judge what is missing of the cells, those of one model after another.

    All inputs are checked first. Cells that lack something are left out, and those that fail do not stop the others.

    Returns the reasons of the cells that failed, by `Cell.folder`.
    """
    failed: dict[str, str] = {}

    @contextlib.contextmanager
    def attempt(cell: Cell) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            logger.error("%s failed: %s", cell.name, error)
            failed[cell.folder] = str(error)

    waiting: dict[Path, tuple[Cell, Evaluation]] = {}
    runs: dict[Path, Cell] = {}
    warned: set[tuple[str, str]] = set()
    for cell in cells:
        if cell.lacks:
            logger.warning("%s is skipped: %s", cell.name, cell.lacks)
            continue
        with attempt(cell):
            other = other_corpus(cell)
            if other and (cell.benchmark, other) not in warned:
                warned.add((cell.benchmark, other))
                logger.warning("%s searches %s; the table is about %s", cell.name, other, corpus_of_table(cell))
        for number, folder in enumerate(folders(table, output, cell), start=1):
            # A sample after the first has draws of its own, so replies of its own to the same prompts.
            cache = output / ("cache.sqlite" if number == 1 else f"cache-sample{number}.sqlite")
            if folder not in runs:
                runs[folder] = cell
                with attempt(cell):
                    evaluation = checked(*cell.arguments(folder, cache))
                    if resume.retry_errors or not _is_finished(folder, evaluation):
                        waiting[folder] = cell, evaluation
    asked = {folder: _asked(evaluation.models) for folder, (_, evaluation) in waiting.items()}
    models = list(dict.fromkeys(asked.values()))
    order = sorted(waiting, key=lambda folder: models.index(asked[folder]))
    servers = KeptServers(output / "logs")
    with contextlib.closing(servers):
        for number, folder in enumerate(order, start=1):
            cell, evaluation = waiting[folder]
            if cell.folder in failed:
                continue
            with attempt(cell):
                metrics = evaluate(evaluation, resume, servers)
                logger.info("[%d/%d] %s", number, len(order), _summary(metrics))
            if cell.folder in failed:
                # A server may have died with it; the next cell starts another.
                servers.close()
        judged = [(folder, cell, cell.judge) for folder, cell in runs.items() if cell.judge and cell.judge.judgements]
        for folder, cell, by in sorted(judged, key=lambda run: repr(run[2].options)):
            if cell.folder not in failed:
                with attempt(cell):
                    models_of_judge = by.models(output / "cache.sqlite")
                    judge([folder], by.judgements, models_of_judge, resume, CostArguments(), servers)
    return failed


def _is_finished(folder: Path, evaluation: Evaluation) -> bool:
    """Whether the folder has the metrics of these questions; its name tells the settings.

    Raises:
        UserError: a model, an index or prompts have changed since.
    """
    if not (folder / "metrics.json").exists():
        return False
    check_fingerprints(folder, fingerprints(evaluation.config))
    return read_digest(folder, "questions") == questions_digest(evaluation.questions)


def _summary(metrics: Metrics) -> str:
    scores = ", ".join(f"{name} {interval.mean:.3f}" for name, interval in list(metrics.metrics.items())[:3])
    return f"{metrics.name}: {metrics.questions} questions, {metrics.errors} errors, {scores}"


def finished(table: Table, output: Path, cell: Cell) -> list[Finished]:
    """The finished runs of a cell's samples; empty unless all are there."""
    found = [Finished(folder) for folder in folders(table, output, cell) if (folder / "metrics.json").exists()]
    return found if len(found) == table.content.samples and not cell.lacks else []
