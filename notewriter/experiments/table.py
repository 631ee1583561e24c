"""`notewriter table FILE`: evaluate what is missing of a paper's table, and write it beside the published values.

    notewriter table configs/papers/deepnote/table_1.yaml --output_dir runs/papers
    notewriter table configs/papers/deepnote/table_1.yaml --output_dir runs/papers --cells 'hotpotqa/deepnote/*'

Each cell is an evaluation in a folder of its own in `cells/`, which tables in the same `output_dir` share. Run again,
it resumes. The table is printed and written as Markdown, LaTeX and an HTML page. A cell that fails is shown with its
reason, the others run, and the exit status says so.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.artifacts.journal import ResumeArguments
from notewriter.evaluation.report.markup import aligned, latex, markdown
from notewriter.experiments.pipelines.pipeline import variables_given
from notewriter.experiments.tables.costs import cost_of, cost_table
from notewriter.experiments.tables.files import Cell, Substitutes, Table, read_table
from notewriter.experiments.tables.running import run_cells
from notewriter.experiments.tables.showing import markups, parts_of, write_table_page
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.rollouts.rehearsal import DryRunArguments


@dataclass
class TableArguments:
    """The table, and what stands in for the paper's models, indexes and numbers of questions."""

    file: Annotated[str, MinLen(1)] = field(
        metadata={"help": "the table file; `--file` may be omitted if it comes first"}
    )
    output_dir: str = field(
        default="runs/papers", metadata={"help": "where cells and tables are; tables share cells of equal settings"}
    )
    cells: list[str] = field(
        default_factory=list,
        metadata={"help": "the cells to run and to show, as BENCHMARK/METHOD/MODEL[/SETTING] with * for anything"},
    )
    set: list[str] = field(
        default_factory=list, metadata={"help": "variables of the paper's file with other values: NAME=VALUE ..."}
    )
    limit: Annotated[int, Interval(ge=1)] | None = field(
        default=None, metadata={"help": "maximum number of questions per cell, for a trial"}
    )
    model: str | None = field(
        default=None,
        metadata={"help": "a model to serve in place of every model, the judge too; marked as a substitute"},
    )
    indexes: str | None = field(
        default=None,
        metadata={"help": "a folder of indexes named after the benchmarks, in place of the paper's retrievers; marked"},
    )
    questions: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "benchmark -> question file, in place of those below $data"}
    )
    options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": 'options of `evaluate` for all cells, e.g. {"serve_options": {"max_model_len": 4096}}'},
    )
    gpus: Annotated[int, Interval(ge=1)] = field(
        default=8, metadata={"help": "A100s, for the hours that --dry_run prints"}
    )


def main(argv: list[str]) -> None:
    """Run the table, or estimate what it costs."""
    if argv and not argv[0].startswith("-"):
        argv = ["--file", *argv]
    arguments, resume, dry = parse(
        (TableArguments, ResumeArguments, DryRunArguments), argv, prog="notewriter table", description=__doc__
    )
    substitutes = Substitutes(
        arguments.model, arguments.indexes, arguments.limit, arguments.questions, arguments.options
    )
    table = read_table(Path(arguments.file), variables_given(arguments.set), substitutes)
    cells = _chosen(table, arguments.cells)
    output = Path(arguments.output_dir)
    if dry.dry_run:
        sys.stdout.write(aligned([cost_table(cost_of(table, cells, dry, output), arguments.gpus)]))
        return
    failed = run_cells(table, cells, output, resume)
    sys.stdout.write(_write(table, cells, output, failed))
    if lost := [cell for cell in cells if cell.folder in failed]:
        raise UserError(
            f"{table.path}: {len(lost)} of {len(cells)} cells failed, the others are in the table; "
            f"{lost[0].name}: {failed[lost[0].folder]}"
        )


def _chosen(table: Table, patterns: list[str]) -> list[Cell]:
    """The cells that a pattern fits, all without patterns."""
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in table.cells):
            named = ", ".join(cell.name for cell in table.cells[:3])
            raise UserError(f"--cells {pattern}: fits no cell of {table.path}; its cells are named like {named}")
    return [cell for cell in table.cells if not patterns or any(fnmatchcase(cell.name, each) for each in patterns)]


def _write(table: Table, cells: list[Cell], output: Path, failed: Mapping[str, str]) -> str:
    """Write the table's files; returns it for the terminal."""
    parts = parts_of(table, cells, output, failed)
    tables = markups(table, parts)
    path = output / table.name
    jsonl.write_text(path.with_suffix(".md"), [markdown(tables)])
    jsonl.write_text(path.with_suffix(".tex"), [latex(tables)])
    write_table_page(table, parts, path.with_suffix(".html"))
    return f"{aligned(tables)}\n{path}.md, .tex and .html\n"
