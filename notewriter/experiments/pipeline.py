"""`notewriter pipeline FILE`: do the runs of a pipeline file, here or as jobs of a Slurm cluster.

    notewriter pipeline pipelines/quickstart
    notewriter pipeline pipelines/quickstart --on slurm
    notewriter pipeline pipelines/quickstart --status true
    notewriter pipeline experiments/worth --at_once 8
    notewriter pipeline pipelines/own

In a terminal the last one asks for its inputs, prints its estimate, and writes the file that it then runs. Run
again, a pipeline resumes. On Slurm it submits only the runs that have no result and no job in the queue.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MinLen

from notewriter.experiments import slurm
from notewriter.experiments.asking import asked, lacks_answers
from notewriter.experiments.files import changes_of
from notewriter.experiments.forecast import forecast
from notewriter.experiments.here import run_here
from notewriter.experiments.run import commands, read_pipeline, read_pipeline_file
from notewriter.ground.config import choose, parse
from notewriter.ground.errors import UserError
from notewriter.ground.options import option

PLACES = ("here", "slurm")


@dataclass
class PipelineArguments:
    """The pipeline, and where it runs."""

    file: Annotated[str, MinLen(1)] = field(
        metadata={"help": "the pipeline: a file or the name of a recipe; `--file` may be omitted if it comes first"}
    )
    on: str = option("here", f"one of: {', '.join(PLACES)}")
    at_once: Annotated[int, Interval(ge=1)] = option(
        1,
        "here: the number of runs side by side, each begun when the runs before it are finished; each "
        "server then takes a part of a GPU's memory",
    )
    output_dir: str | None = option(None, "the folder of the run, in place of the one in the file")
    set: list[str] = field(
        default_factory=list, metadata={"help": "variables of the file with other values: NAME=VALUE ..."}
    )
    dry_run: bool = option(
        False,
        "print the commands, or the sbatch lines, and run nothing; if runs are marked in_dry_run, do "
        "those, and print the minutes, gigabytes and money of each run here",
    )
    status: bool = option(False, "print each run's state, job and log, and run nothing")
    cluster_env: str = option(
        "slurm/cluster.env", "the settings of the cluster; slurm/cluster.env.example of the project shows them"
    )


def main(argv: list[str]) -> None:
    """Run, submit or describe a pipeline."""
    if argv and not argv[0].startswith("-"):
        argv = ["--file", *argv]
    (arguments,) = parse(PipelineArguments, argv, prog="notewriter pipeline", description=__doc__)
    choose("value of --on", arguments.on, dict.fromkeys(PLACES))
    if arguments.at_once > 1 and arguments.on != "here":
        raise UserError("at_once: is for this machine; a cluster runs side by side what it has room for; remove it")
    path, found = Path(arguments.file), None
    here = arguments.on == "here" and not (arguments.dry_run or arguments.status or arguments.set)
    if here and sys.stdin.isatty() and sys.stdout.isatty() and lacks_answers(read_pipeline_file(path)):
        try:
            found = asked(path, arguments.output_dir, input, sys.stdout.write)
        except EOFError:
            sys.stdout.write("\n")
        if not found:
            return
    pipeline = found or read_pipeline(path, arguments.output_dir, changes_of(arguments.set))
    if arguments.status:
        sys.stdout.write(slurm.status(pipeline))
    elif arguments.on == "slurm":
        sys.stdout.write(slurm.submit(pipeline, Path(arguments.cluster_env), dry_run=arguments.dry_run))
    elif arguments.dry_run:
        sys.stdout.writelines(
            forecast(pipeline) if any(run.in_dry_run for run in pipeline.runs) else [commands(pipeline)]
        )
    else:
        run_here(pipeline, arguments.at_once)
