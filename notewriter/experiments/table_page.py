"""A table as it is read: our values with their intervals, and the published ones beside them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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


class Entry(NamedTuple):
    """A value of ours and the published one, as text; empty where there is none. `inside`: see `INSIDE`."""

    ours: str = ""
    interval: str = ""
    published: str = ""
    inside: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a cell.

    Args:
        cell: the cell.
        runs: the runs of its samples; empty unless all are finished.
        failure: why it failed; empty if it did not.
        other: what it searches in place of the table's corpus; empty where it searches that.
    """

    cell: Cell
    runs: list[Finished]
    failure: str
    other: str

    @property
    def blank(self) -> str:
        """What stands where there is no value."""
        return "failed" if self.failure else "–" if self.runs else "not run"

    @property
    def errors(self) -> str:
        """How many questions ended in an error; empty if none did."""
        ended = [bool(each.error) for run in self.runs for each in run.predictions.values()]
        return f"{self.cell.title} ({sum(ended)} of {len(ended)})" if any(ended) else ""


class Row(NamedTuple):
    """A cell, or a point of its curve, whose `setting` says which; `model` names what stands in for the paper's."""

    outcome: Outcome
    model: str
    setting: str
    entries: list[Entry]


class Part(NamedTuple):
    """The rows of a benchmark. `notes` say which cells failed, and which have questions that ended in an error."""

    benchmark: str
    metrics: list[Metric]
    rows: list[Row]
    notes: list[str]


def parts_of(grid: Grid, cells: Sequence[Cell], output: Path, failed: Mapping[str, str]) -> list[Part]:
    """The table's cells by benchmark, with the values of those that are finished.

    `failed` has the reasons of cells that could not be evaluated, by `Cell.folder`.
    """
    by_benchmark: dict[str, list[Outcome]] = {}
    for cell in cells:
        failure = failed.get(cell.folder, "")
        runs = [] if failure else finished(grid, output, cell)
        other = "" if failure or cell.lacks else other_corpus(cell)
        by_benchmark.setdefault(cell.benchmark, []).append(Outcome(cell, runs, failure, other))
    parts = []
    for benchmark, outcomes in by_benchmark.items():
        names = columns(grid, benchmark)
        notes = [f"{each.cell.title} failed: {each.failure}" for each in outcomes if each.failure]
        corpora = dict.fromkeys(corpus_of(each.cell) for each in outcomes if each.other)
        notes += [
            f"The table is about {each}; a row that searches something else is no reproduction." for each in corpora
        ]
        if errors := "; ".join(each.errors for each in outcomes if each.errors):
            notes.append(f"Questions that ended in an error, which count as wrong: {errors}.")
        rows = [row for outcome in outcomes for row in _rows(grid, outcome, names)]
        parts.append(Part(benchmark, [metric_shown(name) for name in names], rows, notes))
    return parts


def _rows(grid: Grid, outcome: Outcome, names: Sequence[str]) -> list[Row]:
    """The row of a cell, or one for each point of its curve."""
    model, setting = model_shown(grid, outcome), outcome.cell.setting
    points = gold_counts(outcome.runs) if grid.content.by and outcome.runs else {}
    if not points:
        return [Row(outcome, model, setting, [_entry(grid, outcome, name) for name in names])]
    return [
        Row(
            outcome,
            model,
            ", ".join(filter(None, (setting, f"{count} gold documents (n = {len(questions)})"))),
            [_entry(grid, outcome, name, questions) for name in names],
        )
        for count, questions in points.items()
    ]


def columns(grid: Grid, benchmark: str) -> list[str]:
    """The names of a benchmark's metrics: those of the file that it has, else those that the paper reports."""
    if grid.content.metrics:
        scored = scored_by(grid, next(cell for cell in grid.cells if cell.benchmark == benchmark))
        return [name for name in grid.content.metrics if name in scored]
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


def model_shown(grid: Grid, outcome: Outcome) -> str:
    """The model's name, after that of its substitute, with what is searched in place of the table's corpus."""
    substitute, model = grid.substitutes.model, outcome.cell.model
    stands_in = list(filter(None, (f"substitute for {model}" if substitute else "", outcome.other)))
    name = Path(substitute).name if substitute else model
    return f"{name} ({'; '.join(stands_in)})" if stands_in else name


def _entry(grid: Grid, outcome: Outcome, name: str, questions: Collection[str] | None = None) -> Entry:
    """The value of a column on the questions that count (default: all), beside the published one."""
    metric, theirs = metric_shown(name), published_of(grid, outcome.cell).get(name)
    published = "" if theirs is None else f"{theirs:,.10g}"
    value = value_of(name, outcome.runs, questions) if outcome.runs else None
    # Three decimals of a share are one of its percentage.
    places = metric.decimals - 2 if metric.share else metric.decimals
    if not isinstance(value, Interval):
        return Entry("" if value is None else f"{value:,.{places}f}", "", published)
    # What was run with substitutes or over another corpus is no reproduction, wherever it lies.
    comparable = not grid.substitutes.given and not outcome.other
    inside = comparable and theirs is not None and value.low <= theirs <= value.high
    bounds = f"{value.low:,.{places}f}, {value.high:,.{places}f}"
    return Entry(f"{value.mean:,.{places}f}", bounds, published, inside)


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
            line = [row.outcome.cell.method, row.model, *([row.setting] if has_setting else [])]
            for entry in row.entries:
                ours = f"{entry.ours} [{entry.interval}]" if entry.interval else entry.ours
                line += [ours or row.outcome.blank, f"{entry.published} {INSIDE}" if entry.inside else entry.published]
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
