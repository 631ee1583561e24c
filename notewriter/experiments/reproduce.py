"""`notewriter reproduce TABLE`: from an empty folder to a paper's table beside its published values.

    notewriter reproduce papers/deepnote/table_1 --cells '2wikimultihopqa/*/Llama-3.1-8B-Instruct' --dry_run true
    notewriter reproduce papers/deepnote/table_1 --cells '2wikimultihopqa/*/Llama-3.1-8B-Instruct'
    notewriter reproduce papers/deepnote/table_1 --write deepnote.yaml
    notewriter pipeline deepnote.yaml --on slurm

Fetches the questions, corpora and models of the chosen cells, builds the corpora and indexes, evaluates the cells and
writes the table. What this takes is printed first. Run again, it goes on; what another table made is not made again.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from notewriter.experiments.cells import check_searched
from notewriter.experiments.files import changes_of
from notewriter.experiments.grid import Cell, Substitutes, TableArguments, read_grid
from notewriter.experiments.here import run_here
from notewriter.experiments.run import read_pipeline
from notewriter.experiments.stages import plan, stages_of, sums
from notewriter.experiments.table_cost import cost_of
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.models.client import Endpoint
from notewriter.models.connection import read_key
from notewriter.pages.tables import aligned
from notewriter.rollouts.rehearsal import DryRunArguments


@dataclass
class ReproduceArguments:
    """What is done with the stages."""

    write: str | None = field(
        default=None,
        metadata={
            "help": "write the stages as a pipeline to this file, to read or to submit to Slurm, and run nothing"
        },
    )
    until: Literal["fetch", "index", "table"] = field(
        default="table",
        metadata={"help": "stop when all is fetched, as on the login node of a cluster, or when the indexes are built"},
    )
    check: bool = field(
        default=True, metadata={"help": "as that of `notewriter fetch`: refuse files that are not the published ones"}
    )


def main(argv: list[str]) -> None:
    """Print the plan, and do it or write it.

    Raises:
        UserError: the table cannot be read, no chosen cell can run, what lies in the place of one of its corpora or
            indexes is another, or a stage fails.
    """
    if argv and not argv[0].startswith("-"):
        argv = ["--file", *argv]
    arguments, substitutes, own, dry = parse(
        [TableArguments, Substitutes, ReproduceArguments, DryRunArguments],
        argv,
        prog="notewriter reproduce",
        description=__doc__,
    )
    grid = read_grid(Path(arguments.file), changes_of(arguments.set), substitutes)
    cells = grid.chosen(arguments.cells)
    if not (able := [cell for cell in cells if not cell.lacks]):
        raise UserError(f"{grid.path}: none of the cells can run; {cells[0].name}: {cells[0].lacks}")
    check_searched(grid, able, sizes=own.check)
    output = Path(arguments.output_dir)
    costs = cost_of(grid, able, dry, output, stand_ins=True)
    stages = stages_of(grid, able, costs, output, table_command(arguments, substitutes), check=own.check)
    kinds = ["fetch", "corpus", "index", "table"]
    stages = [stage for stage in stages if kinds.index(stage.kind) <= kinds.index(own.until)]
    sys.stdout.write(f"{aligned([plan(stages)])}\n{sums(stages)}")
    for lacks in dict.fromkeys(cell.lacks for cell in cells if cell.lacks):
        left = [cell.model for cell in cells if cell.lacks == lacks]
        sys.stdout.write(f"left out: {len(left)} cells of {left[0]}: {lacks}\n")
    for variable, addresses in _keys(able).items():
        if not read_key(variable):
            sys.stdout.write(f"{variable} is not set; {', '.join(addresses)} may ask for it\n")
    if dry.dry_run:
        return
    if not stages:
        sys.stdout.write(f"nothing to be done until {own.until}\n")
        return
    folder = output / grid.name
    path = Path(own.write) if own.write else folder / "pipeline.yaml"
    content = {"output_dir": str(folder), "runs": [stage.run for stage in stages]}
    jsonl.write_text(path, [yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)])
    if own.write:
        sys.stdout.write(f"{path}: written; notewriter pipeline {path}, or with --on slurm\n")
    else:
        run_here(read_pipeline(path))


def _keys(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """The variables with the keys of models that are not served here -> the addresses of these."""
    judges = [cell.judge for cell in cells if cell.judge and cell.judge.judgements]
    options = [*(cell.options for cell in cells), *(judge.options for judge in judges)]
    found: dict[str, list[str]] = {}
    for each in [*options, *(role for one in options for role in one.get("models", {}).values())]:
        addresses = found.setdefault(each.get("api_key_env", Endpoint.api_key_env), [])
        if (address := each.get("base_url")) and address not in addresses:
            addresses.append(address)
    return {variable: addresses for variable, addresses in found.items() if addresses}


def table_command(arguments: TableArguments, substitutes: Substitutes) -> list[str]:
    """The command that evaluates cells of the table and writes its page, without `--cells`."""
    command = ["notewriter", "table", arguments.file, "--output_dir", arguments.output_dir]
    options = {"set": arguments.set, **asdict(substitutes)}
    for name, value in options.items():
        if value:
            values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            command += [f"--{name}", *map(str, values)]
    return command
