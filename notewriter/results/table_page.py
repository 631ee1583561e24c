"""The page of a paper's table: our values with their intervals beside the published ones."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.predictions import Prediction
from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.catalogue import OF_TABLES
from notewriter.evaluation.evidence import METRICS as OF_EVIDENCE
from notewriter.evaluation.judgements import JUDGEMENTS
from notewriter.evaluation.metrics import FAMILIES
from notewriter.evaluation.next_search import METRICS as OF_THE_NEXT_SEARCH
from notewriter.evaluation.notes import METRICS as OF_NOTES
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.plugins import unknown
from notewriter.pages.tables import aligned, latex, markdown
from notewriter.results import page
from notewriter.results.cells import corpus_of, other_corpus
from notewriter.results.measures import TOGETHER, Wanted, all_questions, measure, score
from notewriter.results.page import Section
from notewriter.results.paper_table import Evaluated, PaperTable
from notewriter.results.paper_values import PublishedRow, published_rows
from notewriter.results.runs import Run

INSIDE = "✓"
"""Marks a published value that lies inside our interval."""


def write_table(table: PaperTable, cells: Sequence[Evaluated], failed: Mapping[str, str]) -> str:
    """Write the table's files; returns it for the terminal.

    `failed` has the reasons of cells that could not be evaluated, by `Evaluated.folder`.
    """
    notes, tables, sections = notes_of(table), [], []
    for benchmark in dict.fromkeys(cell.column for cell in cells):
        own, header, rows = _rows(table, [cell for cell in cells if cell.column == benchmark], failed)
        caption = f"{table.file.title}, {benchmark}. {' '.join([*notes, *own])}"
        tables.append((caption, header[:-1], [row[:-1] for row in rows]))
        sections.append(Section(benchmark, benchmark, [*own, ("", header, rows)], texts=2))
    path = table.output / table.name
    jsonl.write_text(path.with_suffix(".md"), [markdown(tables)])
    jsonl.write_text(path.with_suffix(".tex"), [latex(tables)])
    page.write(path.with_suffix(".html"), table.file.title, notes, sections)
    return f"{aligned(tables)}\n{path}.md, .tex and .html\n"


def _rows(
    table: PaperTable, cells: Sequence[Evaluated], failed: Mapping[str, str]
) -> tuple[list[str], list[str], list[list[str]]]:
    """Remarks on the cells of a benchmark, and a header and rows, which end with the run folders."""
    names, published = columns(table, cells[0].column), ["published"] if _rows_of(table) else []
    failures, searched, errors, rows = [], [], [], []
    for cell in cells:
        failure = failed.get(cell.folder, "")
        runs = [] if failure else cell.finished
        other = "" if failure or cell.lacks else other_corpus(cell)
        failures += [f"{cell.row} failed: {failure}"] if failure else []
        searched += [corpus_of(cell)] if other else []
        ended = [bool(each.error) for run in runs for each in run.predictions.values()]
        errors += [f"{cell.row} ({sum(ended)} of {len(ended)})"] if any(ended) else []
        folders = ", ".join(run.folder.name for run in runs) or failure or cell.lacks
        blank = "failed" if failure else "–" if runs else "not run"
        for setting, wanted in _points(table, cell, runs):
            pairs = [_values(table, cell, name, runs, wanted, blank, bool(other)) for name in names]
            values = [text for pair in pairs for text in pair[: 1 + len(published)]]
            rows.append([cell.method, _model_shown(table, cell, other), setting, *values, folders])
    heads = [head for name in names for head in (measure(name).label, *published)]
    header = ["Method", "Model", "Setting", *heads, "Run folder"]
    if not any(setting for _, _, setting, *_ in rows):
        header, *rows = ([*row[:2], *row[3:]] for row in [header, *rows])
    corpora = dict.fromkeys(searched)
    notes = [f"The table is about {each}; a row that searches something else is no reproduction." for each in corpora]
    if errors:
        notes.append(f"Questions that ended in an error, which count as wrong: {'; '.join(errors)}.")
    return [*failures, *notes], header, rows


def _points(table: PaperTable, cell: Evaluated, runs: Sequence[Run]) -> list[tuple[str, Wanted]]:
    """The setting of each row of a cell, and the questions that count in it: all, or those of a number of documents.

    Questions with an unknown number are in no row of a curve.
    """
    needed = Counter(
        each.gold_documents for run in runs[:1] for each in run.predictions.values() if each.gold_documents
    )
    if not table.file.by or not needed:
        return [(cell.setting, all_questions)]

    def needs(count: int, prediction: Prediction) -> bool:
        return prediction.gold_documents == count

    settings = {count: f"{count} gold documents (n = {questions})" for count, questions in sorted(needed.items())}
    return [(", ".join(filter(None, (cell.setting, each))), partial(needs, count)) for count, each in settings.items()]


def check_metrics(table: PaperTable) -> None:
    """Check that some cell of the table has each of the file's metrics.

    Raises:
        UserError: none has; names what they have, and the name that is nearest.
    """
    known = {name for cell in table.cells for name in scored_by(cell)} if table.file.metrics else set()
    for name in table.file.metrics:
        if name not in known:
            raise UserError(f"{table.path}: metrics: {unknown('metric', name, known)}")


def columns(table: PaperTable, benchmark: str) -> list[str]:
    """The names of a benchmark's metrics: of the file's those that it has.

    Without any in the file they are those that the paper reports; where it reports nothing, the metric family's.
    """
    cell = next(cell for cell in table.cells if cell.column == benchmark)
    if table.file.metrics:
        scored = scored_by(cell)
        return [name for name in table.file.metrics if name in scored]
    reported = [row["values"] for row in _rows_of(table) if row["dataset"] == benchmark]
    return list(dict.fromkeys(name for values in reported for name in values)) or _of_the_family(cell)


def scored_by(cell: Evaluated) -> set[str]:
    """The names of the scores and costs that a finished cell may have."""
    judgements = cell.judge.judgements if cell.judge else []
    judged = {score for name in judgements for score in JUDGEMENTS[name].scores}
    of_all = {each.name for each in (*OF_NOTES, *OF_EVIDENCE, *OF_THE_NEXT_SEARCH)}
    return {*_of_the_family(cell)} | judged | of_all | {*OF_TABLES}


def _of_the_family(cell: Evaluated) -> list[str]:
    family = cell.options.get("family") or BENCHMARKS[cell.options["dataset"]].family
    return [metric.name for metric in FAMILIES[family].metrics]


def published_of(table: PaperTable, cell: Evaluated) -> dict[str, float]:
    """The paper's values of a cell at the table's place; empty where it has none."""
    rows = {(row["dataset"], row["method"], row["model"], row["setting"]): row["values"] for row in _rows_of(table)}
    return rows.get((cell.column, cell.method, cell.model, cell.setting), {})


def _rows_of(table: PaperTable) -> list[PublishedRow]:
    place = (table.file.paper, table.file.place)
    return [row for row in published_rows() if (row["paper"], row["place"]) == place]


def _model_shown(table: PaperTable, cell: Evaluated, other: str) -> str:
    """The model's name, after that of its substitute, with the corpus searched in place of the table's."""
    substitute = table.substitutes.model
    stands_in = list(filter(None, (f"substitute for {cell.model}" if substitute else "", other)))
    name = Path(substitute).name if substitute else cell.model
    return f"{name} ({'; '.join(stands_in)})" if stands_in else name


def _values(
    table: PaperTable, cell: Evaluated, name: str, runs: Sequence[Run], wanted: Wanted, blank: str, elsewhere: bool
) -> tuple[str, str]:
    """Our value of a column and the published one, which is marked where it lies inside our interval.

    Shares are in percent, as papers have them. `blank` stands where there is no value; `elsewhere`: another corpus was
    searched.
    """
    metric, theirs = measure(name), published_of(table, cell).get(name)
    published = "" if theirs is None else f"{theirs:,.10g}"
    # Three decimals of a share are one of its percentage.
    scale, places = (100, metric.decimals - 2) if metric.share else (1, metric.decimals)
    if name in TOGETHER:
        # It is of all questions, and a row of a curve is of some.
        value = TOGETHER[name](runs) if runs and wanted is all_questions else None
        return (blank if value is None else f"{value:,.{places}f}"), published
    if not (found := score(name, runs, wanted)):
        return blank, published
    ours = Interval(*(scale * each for each in (found.interval.mean, found.interval.low, found.interval.high)))
    # What was run with substitutes or over another corpus is no reproduction, wherever it lies.
    if theirs is not None and ours.low <= theirs <= ours.high and not table.substitutes.given and not elsewhere:
        published += f" {INSIDE}"
    return ours.text(places), published


def notes_of(table: PaperTable) -> list[str]:
    """Remarks for readers of the table."""
    of = table.substitutes
    name = Path(of.model or "").name
    files = ", ".join(sorted(set(of.questions.values())))
    remarks = (
        (table.file.note, table.file.note),
        (of.model, f"{name} stands in for every model, so that no value here is comparable with the published ones."),
        (of.indexes, f"The indexes in {of.indexes} were searched instead of the paper's retriever."),
        (of.questions, f"Questions are from {files}."),
        (of.limit, f"At most {of.limit} questions a cell, not the paper's number."),
        (of.options, f"Options of all cells: {json.dumps(of.options)}."),
    )
    is_marked = _rows_of(table) and not of.given
    mark = f"; {INSIDE} marks a published value inside our interval" if is_marked else ""
    return [*(text for said, text in remarks if said), f"Ours with 95% bootstrap intervals{mark}."]
