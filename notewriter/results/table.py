"""`notewriter table FILE`: a paper's table beside its published values, or the page of an experiment.

    notewriter table papers/deepnote/table_1 --cells 'hotpotqa/*/Llama-3.1-8B-Instruct' --make true --dry_run true
    notewriter table papers/deepnote/table_1 --cells 'hotpotqa/*/Llama-3.1-8B-Instruct' --make true
    notewriter table papers/deepnote/table_1 --make true --write deepnote.yaml
    notewriter table experiments/e1 --output runs/e1.md
    notewriter table experiments/e1 --from_notes runs/e1-notes.parquet --output runs/e1.md

Each cell of a paper's table is an evaluation in a folder of its own in `cells/`, which tables in one `output_dir`
share. Cells without scores are evaluated first; one that fails is shown with its reason, the others run, and the exit
status is 2. `--make true` also makes what they need: it fetches questions, corpora and models, and builds corpora and
indexes. Run again, it goes on. The table is printed, and written as Markdown, LaTeX and HTML.

The key `results` of a pipeline file names the runs that an experiment compares; give the same `--set` and
`--output_dir` as to the pipeline. Runs that do not exist yet are listed as not run; `--make true` does the pipeline
first. Every note is published beside the page with its scores: `--from_notes` writes the page again when the run
folders are gone.
"""

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import yaml
from annotated_types import Interval, MinLen

from notewriter.artifacts.journal import ResumeArguments
from notewriter.experiments.files import changes_of, read_file
from notewriter.experiments.here import run_here
from notewriter.experiments.run import commands, read_pipeline
from notewriter.ground import jsonl
from notewriter.ground.config import command_line, given, parse
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_of, option
from notewriter.models.connection import read_key
from notewriter.models.roles import models_of
from notewriter.pages.tables import aligned
from notewriter.results.cells import check_searched, run_cells
from notewriter.results.cost import cost_of, cost_table
from notewriter.results.experiment import read_experiment
from notewriter.results.experiment_page import ExperimentArguments, write_page
from notewriter.results.paper_table import OUTPUT, Evaluated, PaperTable, Substitutes, read_table
from notewriter.results.steps import missing, plan, steps_of, sums
from notewriter.results.table_page import check_metrics, write_table
from notewriter.rollouts.rehearsal import DryRunArguments


@dataclass
class TableArguments:
    """The options of a table: its file, the folder of its runs, and whether their inputs are made."""

    file: Annotated[str, MinLen(1)] = field(
        metadata={
            "help": "a paper's table, or a pipeline with `results`: a file or the name of a recipe; "
            "`--file` may be omitted if it comes first"
        }
    )
    output_dir: str | None = option(
        None,
        "the folder of the runs; default: runs/papers for papers, whose tables share cells of equal "
        "settings, and for an experiment the folder that its file names",
    )
    set: list[str] = field(
        default_factory=list, metadata={"help": "new values for variables of the file: NAME=VALUE ..."}
    )
    make: bool = option(
        False, "make everything that is missing, even from an empty folder; with --dry_run, print the estimate instead"
    )


@dataclass
class PaperArguments:
    """The cells of a paper's table, and the treatment of the steps that lead to them."""

    cells: list[str] = field(
        default_factory=list,
        metadata={
            "help": "patterns of the cells to run and to show: BENCHMARK/METHOD/MODEL[/SETTING], where * matches "
            "anything"
        },
    )
    page: bool = option(
        True, "write the table; false only evaluates the cells, for one of several jobs that share a table"
    )
    gpus: Annotated[int, Interval(ge=1)] = option(8, "number of A100s that --dry_run assumes for its hours")
    write: str | None = option(
        None, "with --make: write the steps as a pipeline, to read or to submit to Slurm, and run nothing"
    )
    until: Literal["fetch", "index", "table"] = option(
        "table",
        "with --make: stop when all is fetched, as on the login node of a cluster, or when the indexes are built",
    )
    check: bool = option(
        True, "with --make: refuse downloaded files that are not the published ones, as `notewriter fetch --check` does"
    )


def main(argv: list[str]) -> None:
    """Write the table or the page, or print its estimate."""
    options = ["--file", *argv] if argv and not argv[0].startswith("-") else argv
    of_papers = [PaperArguments, Substitutes, ResumeArguments]
    kinds = [TableArguments, *of_papers, ExperimentArguments, DryRunArguments]
    arguments, paper, substitutes, resume, own, dry = parse(
        kinds, options, prog="notewriter table", description=__doc__
    )
    if "runs" in read_file(Path(arguments.file), "check the path of the table"):
        _refuse(options, names_of(*of_papers), f"{arguments.file} is an experiment, not a paper's table")
        _experiment(arguments, own, dry, ["notewriter", "table", *argv])
    else:
        _refuse(options, names_of(ExperimentArguments), f"{arguments.file} is a paper's table")
        if arguments.make:
            _refuse(options, ["page", "gpus", "retry_errors"], "--make does every step, each on what it needs")
        else:
            _refuse(options, ["write", "until", "check"], "it belongs to --make; add --make true")
        command = command_line("notewriter table", options)
        _paper(arguments, paper, substitutes, resume, dry, command)


def _refuse(options: Sequence[str], names: Collection[str], why: str) -> None:
    """Refuse options that would do nothing."""
    if without_use := [name for name in given(options) if name in names]:
        raise UserError(f"--{without_use[0]} has no effect: {why}")


def _experiment(arguments: TableArguments, own: ExperimentArguments, dry: DryRunArguments, command: list[str]) -> None:
    changes = changes_of(arguments.set)
    experiment, pipeline = read_experiment(Path(arguments.file), arguments.output_dir, changes, own.rows)
    if dry.dry_run:
        sys.stdout.write(commands(pipeline))
        return
    if arguments.make:
        run_here(pipeline)
    write_page(experiment, pipeline, own, command)


def _paper(
    arguments: TableArguments,
    paper: PaperArguments,
    substitutes: Substitutes,
    resume: ResumeArguments,
    dry: DryRunArguments,
    command: list[str],
) -> None:
    table = read_table(
        Path(arguments.file), changes_of(arguments.set), substitutes, Path(arguments.output_dir or OUTPUT)
    )
    check_metrics(table)
    cells = table.chosen(paper.cells)
    if arguments.make:
        _make(table, cells, paper, dry, table_command(arguments, substitutes))
        return
    if dry.dry_run:
        sys.stdout.write(aligned([cost_table([*cost_of(table, cells, dry).values()], paper.gpus)]))
        return
    failed = run_cells(table, cells, resume, command)
    if paper.page:
        sys.stdout.write(write_table(table, cells, failed))
    if lost := [cell for cell in cells if cell.folder in failed]:
        others = ", the others are in the table" if len(lost) < len(cells) else ""
        raise UserError(
            f"{table.path}: {len(lost)} of {len(cells)} cells failed{others}; {lost[0].name}: {failed[lost[0].folder]}"
        )


def _make(
    table: PaperTable, cells: list[Evaluated], paper: PaperArguments, dry: DryRunArguments, command: list[str]
) -> None:
    """Print the steps from an empty folder to the table, and do or write them.

    Raises:
        UserError: no chosen cell can run, what lies in the place of one of its corpora or indexes is another, a file of
            the user's is missing, or a step fails.
    """
    if not (able := [cell for cell in cells if not cell.lacks]):
        raise UserError(f"{table.path}: none of the cells can run; {cells[0].name}: {cells[0].lacks}")
    check_searched(table, able, sizes=paper.check)
    steps = steps_of(table, able, cost_of(table, able, dry, stand_ins=True), command, check=paper.check)
    kinds = ["fetch", "corpus", "index", "table"]
    steps = [step for step in steps if kinds.index(step.argv()[1]) <= kinds.index(paper.until)]
    sys.stdout.write(f"{aligned([plan(steps)])}\n{sums(steps)}")
    for lacks in dict.fromkeys(cell.lacks for cell in cells if cell.lacks):
        left = [cell.model for cell in cells if cell.lacks == lacks]
        sys.stdout.write(f"left out: {len(left)} cells of {left[0]}: {lacks}\n")
    for variable, addresses in _keys(able).items():
        if not read_key(variable):
            sys.stdout.write(f"{variable} is not set; {', '.join(addresses)} may ask for it\n")
    if lost := missing(table, able):
        raise UserError(f"{table.path}: missing, and made by no step: {'; '.join(lost)}")
    if dry.dry_run:
        return
    if not steps:
        sys.stdout.write(f"nothing to be done until {paper.until}\n")
        return
    folder = table.output / table.name
    path = Path(paper.write) if paper.write else folder / "pipeline.yaml"
    content = {"output_dir": str(folder), "runs": [step.entry for step in steps]}
    jsonl.write_text(path, [yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)])
    if paper.write:
        sys.stdout.write(f"{path}: written; notewriter pipeline {path}, or with --on slurm\n")
    else:
        run_here(read_pipeline(path))


def _keys(cells: Sequence[Evaluated]) -> dict[str, list[str]]:
    """The variables with the keys of models that are not served here -> the addresses of these."""
    found: dict[str, list[str]] = {}
    for each in (role for cell in cells for arguments in cell.asked for role in models_of(arguments).values()):
        if each.base_url and each.base_url not in found.setdefault(each.api_key_env, []):
            found[each.api_key_env].append(each.base_url)
    return found


def table_command(arguments: TableArguments, substitutes: Substitutes) -> list[str]:
    """The command that evaluates cells of the table and writes its page, without `--cells`."""
    command = ["notewriter", "table", arguments.file, "--output_dir", arguments.output_dir or OUTPUT]
    options = {"set": arguments.set, **asdict(substitutes)}
    for name, value in options.items():
        if value:
            values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            command += [f"--{name}", *map(str, values)]
    return command
