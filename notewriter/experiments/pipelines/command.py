"""`notewriter pipeline FILE`: run the stages of a pipeline file, here or as jobs of a Slurm cluster.

    notewriter pipeline configs/pipelines/quickstart.yaml
    notewriter pipeline configs/pipelines/quickstart.yaml --on slurm
    notewriter pipeline configs/pipelines/quickstart.yaml --status true

Run again, it resumes. On Slurm it submits only the stages that have no result and no job in the queue.
"""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.experiments.pipelines import slurm
from notewriter.experiments.pipelines.local import command_line, run_here
from notewriter.experiments.pipelines.pipeline import Pipeline, read_pipeline, variables_given
from notewriter.ground.config import choose, parse

PLACES = ("here", "slurm")


@dataclass
class PipelineArguments:
    """The pipeline, and where it runs."""

    file: Annotated[str, MinLen(1)] = field(
        metadata={"help": "the pipeline file; `--file` may be omitted if it comes first"}
    )
    on: str = field(default="here", metadata={"help": f"one of: {', '.join(PLACES)}"})
    output_dir: str | None = field(
        default=None, metadata={"help": "the folder of the run, in place of the one in the file"}
    )
    set: list[str] = field(
        default_factory=list, metadata={"help": "variables of the file with other values: NAME=VALUE ..."}
    )
    dry_run: bool = field(default=False, metadata={"help": "print the commands, or the sbatch lines, and run nothing"})
    status: bool = field(default=False, metadata={"help": "print each stage's state, job and log, and run nothing"})
    cluster_env: str = field(
        default="slurm/cluster.env",
        metadata={"help": "the settings of the cluster; slurm/cluster.env.example of the project shows them"},
    )


def main(argv: list[str]) -> None:
    """Run, submit or describe a pipeline."""
    if argv and not argv[0].startswith("-"):
        argv = ["--file", *argv]
    (arguments,) = parse(PipelineArguments, argv, prog="notewriter pipeline", description=__doc__)
    choose("value of --on", arguments.on, dict.fromkeys(PLACES))
    pipeline = read_pipeline(Path(arguments.file), arguments.output_dir, variables_given(arguments.set))
    if arguments.status:
        sys.stdout.write(slurm.status(pipeline))
    elif arguments.on == "slurm":
        sys.stdout.write(slurm.submit(pipeline, Path(arguments.cluster_env), dry_run=arguments.dry_run))
    elif arguments.dry_run:
        sys.stdout.write(_commands(pipeline))
    else:
        run_here(pipeline)


def _commands(pipeline: Pipeline) -> str:
    """The command of every shard of every stage, under its title."""
    return "".join(
        f"# {stage.title}{'' if stage.missing() else ' (skipped)' if stage.skipped() else ' (finished)'}\n"
        + "".join(f"{shlex.join(command_line(stage, shard))}\n" for shard in range(1, stage.shards + 1))
        for stage in pipeline.stages
    )
