"""A table as it is read: our values with their intervals, and the published ones beside them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from notewriter.artifacts.metrics import Interval
from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.judgements import JUDGEMENTS
from notewriter.evaluation.metrics import FAMILIES
from notewriter.evaluation.metrics.metric import Metric
from notewriter.evaluation.papers import PublishedRow, published_rows
from notewriter.experiments.cells import corpus_of, finished, other_corpus
from notewriter.experiments.grid import Cell, Grid
from notewriter.experiments.values import SHOWN, SUMMARIES, Finished, gold_counts, metric_shown, value_of
from notewriter.pages import write_page
from notewriter.pages.tables import Table

INSIDE = "✓"
"""Marks a published value that lies inside our interval."""


@dataclass(frozen=True)
class Entry:
    """A value of ours and the published one, as text; empty where there is none. `inside`: see `INSIDE`."""

    ours: str = ""
    interval: str = ""
    published: str = ""
    inside: bool = False


@dataclass(frozen=True)
class Row:
    """A row.

    Args:
        method: its name in the table.
        model: the model's name, and what stands in for the paper's models and corpora.
        setting: what differs from the paper's settings.
        blank: what stands where there is no value of ours.
        remark: why it was not run; empty if it was.
        folders: the names of its run folders.
        entries: its values.
    """

    method: str
    model: str
    setting: str
    blank: str
    remark: str
    folders: list[str]
    entries: list[Entry]


@dataclass(frozen=True)
class Part:
    """The rows of a benchmark. `notes` say which cells failed, and which have questions that ended in an error."""

    benchmark: str
    metrics: list[Metric]
    rows: list[Row]
    notes: list[str]


def parts_of(grid: Grid, cells: Sequence[Cell], output: Path, failed: Mapping[str, str]) -> list[Part]:
    """The table's cells by benchmark, with the values of those that are finished.

    `failed` has the reasons of cells that could not be evaluated, by `Cell.folder`.
    """
    parts = []
    for benchmark in dict.fromkeys(cell.benchmark for cell in cells):
        own = [cell for cell in cells if cell.benchmark == benchmark]
        names = columns(grid, benchmark)
        others = {cell.name: "" if cell.lacks or cell.folder in failed else other_corpus(cell) for cell in own}
        runs = {cell.name: [] if cell.folder in failed else finished(grid, output, cell) for cell in own}
        rows = [
            row
            for cell in own
            for row in _points(grid, cell, names, runs[cell.name], failed.get(cell.folder, ""), others[cell.name])
        ]
        notes = [f"{cell.title} failed: {failed[cell.folder]}" for cell in own if cell.folder in failed]
        corpora = dict.fromkeys(corpus_of(cell) for cell in own if others[cell.name])
        notes += [
            f"The table is about {each}; a row that searches something else is no reproduction." for each in corpora
        ]
        if errors := "; ".join(filter(None, (_errors(cell, runs[cell.name]) for cell in own))):
            notes.append(f"Questions that ended in an error, which count as wrong: {errors}.")
        parts.append(Part(benchmark, [metric_shown(name) for name in names], rows, notes))
    return parts


def _errors(cell: Cell, runs: Sequence[Finished]) -> str:
    ended = [bool(each.error) for run in runs for each in run.predictions.values()]
    return f"{cell.title} ({sum(ended)} of {len(ended)})" if any(ended) else ""


def _points(
    grid: Grid, cell: Cell, names: Sequence[str], runs: Sequence[Finished], reason: str, other: str
) -> list[Row]:
    """The row of a cell, or one for each point of its curve."""
    row = Row(
        method=cell.method,
        model=model_shown(grid, cell, other),
        setting=cell.setting,
        blank="failed" if reason else "–" if runs else "not run",
        remark=reason or cell.lacks,
        folders=[run.folder.name for run in runs],
        entries=_entries(grid, cell, names, runs, other),
    )
    if grid.content.by is None or not runs:
        return [row]
    points = [
        replace(
            row,
            setting=", ".join(filter(None, (cell.setting, f"{count} gold documents (n = {len(questions)})"))),
            entries=_entries(grid, cell, names, runs, other, questions),
        )
        for count, questions in gold_counts(runs).items()
    ]
    return points or [row]


def columns(grid: Grid, benchmark: str) -> list[str]:
    """The names of a benchmark's metrics: those of the file that it has, else those that the paper reports."""
    if grid.content.metrics:
        known = scored_by(grid, next(cell for cell in grid.cells if cell.benchmark == benchmark))
        return [name for name in grid.content.metrics if name in known]
    reported = [row["values"] for row in _rows_of(grid) if row["dataset"] == benchmark]
    return list(dict.fromkeys(name for values in reported for name in values))


def scored_by(grid: Grid, cell: Cell) -> set[str]:
    """The names of the scores and costs that a finished cell has."""
    family = cell.options.get("family") or BENCHMARKS[cell.options["dataset"]].family
    judgements = cell.judge.judgements if cell.judge else []
    judged = {score for name in judgements for score in JUDGEMENTS[name].scores}
    return {metric.name for metric in FAMILIES[family].metrics} | judged | {*SHOWN, *SUMMARIES}


def published_of(grid: Grid, cell: Cell) -> dict[str, float]:
    """What the paper reports of a cell at the table's place; empty where it does not."""
    return next(
        (
            row["values"]
            for row in _rows_of(grid)
            if (row["dataset"], row["method"], row["model"], row["setting"])
            == (cell.benchmark, cell.method, cell.model, cell.setting)
        ),
        {},
    )


def _rows_of(grid: Grid) -> list[PublishedRow]:
    place = (grid.content.paper, grid.content.place)
    return [row for row in published_rows() if (row["paper"], row["place"]) == place]


def model_shown(grid: Grid, cell: Cell, other: str) -> str:
    """The model's name, after that of its substitute, with what is searched in place of the table's corpus."""
    substitute = grid.substitutes.model
    stands_in = list(filter(None, (f"substitute for {cell.model}" if substitute else "", other)))
    name = Path(substitute).name if substitute else cell.model
    return f"{name} ({'; '.join(stands_in)})" if stands_in else name


def _entries(
    grid: Grid,
    cell: Cell,
    names: Sequence[str],
    runs: Sequence[Finished],
    other: str,
    questions: Collection[str] | None = None,
) -> list[Entry]:
    theirs = published_of(grid, cell)
    entries = []
    for name in names:
        metric = metric_shown(name)
        value = value_of(name, runs, questions) if runs else None
        # Three decimals of a share are one of its percentage.
        places = metric.decimals - 2 if metric.share else metric.decimals
        published = f"{theirs[name]:,.10g}" if name in theirs else ""
        if isinstance(value, Interval):
            # What was run with substitutes or over another corpus is no reproduction, wherever it lies.
            comparable = name in theirs and not grid.substitutes.given and not other
            inside = comparable and value.low <= theirs[name] <= value.high
            bounds = f"{value.low:,.{places}f}, {value.high:,.{places}f}"
            entries.append(Entry(f"{value.mean:,.{places}f}", bounds, published, inside))
        else:
            entries.append(Entry("" if value is None else f"{value:,.{places}f}", "", published))
    return entries


def notes_of(grid: Grid) -> list[str]:
    """What has to be known to read the table."""
    notes = [grid.content.note] if grid.content.note else []
    if grid.substitutes.model:
        name = Path(grid.substitutes.model).name
        notes.append(f"{name} stands in for every model, so that no value here is comparable with the published ones.")
    if grid.substitutes.indexes:
        notes.append(f"The indexes in {grid.substitutes.indexes} were searched instead of the paper's retriever.")
    if grid.substitutes.questions:
        notes.append(f"Questions are from {', '.join(sorted(set(grid.substitutes.questions.values())))}.")
    if grid.substitutes.limit:
        notes.append(f"At most {grid.substitutes.limit} questions a cell, not the paper's number.")
    if grid.substitutes.options:
        notes.append(f"Options of all cells: {json.dumps(grid.substitutes.options)}.")
    mark = "" if grid.substitutes.given else f"; {INSIDE} marks a published value inside our interval"
    notes.append(f"Ours with 95% bootstrap intervals{mark}.")
    return notes


def tables_of(grid: Grid, parts: Sequence[Part]) -> list[Table]:
    """One table a benchmark, for `notewriter.pages.tables` and the terminal."""
    tables: list[Table] = []
    for part in parts:
        has_setting = any(row.setting for row in part.rows)
        header = ["Method", "Model", *(["Setting"] if has_setting else [])]
        for metric in part.metrics:
            header += [metric.label, "published"]
        rows = []
        for row in part.rows:
            line = [row.method, row.model, *([row.setting] if has_setting else [])]
            for entry in row.entries:
                ours = f"{entry.ours} [{entry.interval}]" if entry.interval else entry.ours
                line += [
                    ours or row.blank,
                    f"{entry.published} {INSIDE}" if entry.inside else entry.published,
                ]
            rows.append(line)
        notes = " ".join([*notes_of(grid), *part.notes])
        tables.append((f"{grid.content.title}, {part.benchmark}. {notes}", header, rows))
    return tables


def write_table_page(grid: Grid, parts: Sequence[Part], path: Path) -> None:
    """Write the table as one self-contained HTML page in the report's style.

    Raises:
        UserError: it cannot be written.
    """
    write_page(
        path,
        Path(__file__).with_name("table.html.jinja"),
        {},
        title=grid.content.title,
        notes=notes_of(grid),
        parts=parts,
        inside=INSIDE,
    )
