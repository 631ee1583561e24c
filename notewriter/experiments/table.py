"""`notewriter table FILE`: evaluate what is missing of a paper's table, and write it beside the published values.

    notewriter table papers/deepnote/table_1 --output_dir runs/papers
    notewriter table papers/deepnote/table_1 --output_dir runs/papers --cells 'hotpotqa/deepnote/*'

Each cell is an evaluation in a folder of its own in `cells/`, which tables in the same `output_dir` share. Run again,
it resumes. The table is printed and written as Markdown, LaTeX and an HTML page. A cell that fails is shown with its
reason, the others run, and the exit status says so.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MinLen

from notewriter.artifacts.journal import ResumeArguments
from notewriter.experiments.cells import run_cells
from notewriter.experiments.files import changes_of
from notewriter.experiments.grid import Cell, Grid, Substitutes, read_grid
from notewriter.experiments.table_cost import cost_of, cost_table
from notewriter.experiments.table_page import parts_of, tables_of, write_table_page
from notewriter.ground import jsonl
from notewriter.ground.config import command_line, parse
from notewriter.ground.errors import UserError
from notewriter.pages.tables import aligned, latex, markdown
from notewriter.rollouts.rehearsal import DryRunArguments


@dataclass
class TableArguments:
    """The table, and which of its cells."""

    file: Annotated[str, MinLen(1)] = field(
        metadata={"help": "the table: a file or the name of a recipe; `--file` may be omitted if it comes first"}
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
    gpus: Annotated[int, Interval(ge=1)] = field(
        default=8, metadata={"help": "A100s, for the hours that --dry_run prints"}
    )


def main(argv: list[str]) -> None:
    """Run the table, or estimate what it costs."""
    if argv and not argv[0].startswith("-"):
        argv = ["--file", *argv]
    arguments, substitutes, resume, dry = parse(
        [TableArguments, Substitutes, ResumeArguments, DryRunArguments],
        argv,
        prog="notewriter table",
        description=__doc__,
    )
    grid = read_grid(Path(arguments.file), changes_of(arguments.set), substitutes)
    cells = _chosen(grid, arguments.cells)
    output = Path(arguments.output_dir)
    if dry.dry_run:
        sys.stdout.write(aligned([cost_table(cost_of(grid, cells, dry, output), arguments.gpus)]))
        return
    failed = run_cells(grid, cells, output, resume, command_line("notewriter table", argv))
    sys.stdout.write(_write(grid, cells, output, failed))
    if lost := [cell for cell in cells if cell.folder in failed]:
        raise UserError(
            f"{grid.path}: {len(lost)} of {len(cells)} cells failed, the others are in the table; "
            f"{lost[0].name}: {failed[lost[0].folder]}"
        )


def _chosen(grid: Grid, patterns: list[str]) -> list[Cell]:
    """The cells that a pattern fits, all without patterns."""
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in grid.cells):
            names = ", ".join(cell.name for cell in grid.cells[:3])
            raise UserError(f"--cells {pattern}: fits no cell of {grid.path}; its cells are named like {names}")
    return [cell for cell in grid.cells if not patterns or any(fnmatchcase(cell.name, each) for each in patterns)]


def _write(grid: Grid, cells: list[Cell], output: Path, failed: Mapping[str, str]) -> str:
    """Write the table's files; returns it for the terminal."""
    parts = parts_of(grid, cells, output, failed)
    tables = tables_of(grid, parts)
    path = output / grid.name
    jsonl.write_text(path.with_suffix(".md"), [markdown(tables)])
    jsonl.write_text(path.with_suffix(".tex"), [latex(tables)])
    write_table_page(grid, parts, path.with_suffix(".html"))
    return f"{aligned(tables)}\n{path}.md, .tex and .html\n"
