"""`notewriter quickstart`: the whole pipeline on a generated world, on the CPU, evaluated before and after DPO.

The runs are those of the recipe pipelines/quickstart. Each is a command that can also be given by hand; it is the first
line of the run's log. Finished runs do nothing when the quickstart is started again.
"""

import sys
from dataclasses import dataclass, field

from notewriter.experiments.here import run_here
from notewriter.experiments.run import commands, read_pipeline
from notewriter.ground import recipes
from notewriter.ground.config import parse

FILE = recipes.file_named("pipelines/quickstart")


@dataclass
class QuickstartArguments:
    """The folders of the quickstart."""

    output_dir: str = field(default="runs/quickstart", metadata={"help": "the folder for all output"})
    model_dir: str = field(
        default="models/SmolLM2-135M-Instruct", metadata={"help": "the model to start from; fetched if missing"}
    )
    dry_run: bool = field(default=False, metadata={"help": "print the commands and run nothing"})


def main(argv: list[str]) -> None:
    """Do the runs in order and print the output of the last one, the table."""
    (arguments,) = parse(QuickstartArguments, argv, prog="notewriter quickstart", description=__doc__)
    pipeline = read_pipeline(FILE, arguments.output_dir, {"model_dir": arguments.model_dir})
    if arguments.dry_run:
        sys.stdout.write(commands(pipeline))
    else:
        run_here(pipeline)
