"""`notewriter quickstart`: the whole pipeline on a generated world, on the CPU, evaluated before and after DPO.

The stages are those of configs/pipelines/quickstart.yaml. Each is a command that can also be run by hand; it is the
first line of the stage's log. Finished stages do nothing when the quickstart is run again.
"""

from dataclasses import dataclass, field

from notewriter.experiments.pipelines.local import run_here
from notewriter.experiments.pipelines.pipeline import PROJECT, read_pipeline
from notewriter.ground.config import parse

FILE = PROJECT / "configs" / "pipelines" / "quickstart.yaml"


@dataclass
class QuickstartArguments:
    """The folders of the quickstart."""

    output_dir: str = field(default="runs/quickstart", metadata={"help": "the folder for all output"})
    model_dir: str = field(
        default="models/SmolLM2-135M-Instruct", metadata={"help": "the model to start from; fetched if missing"}
    )


def main(argv: list[str]) -> None:
    """Run the stages in order and print the output of the last one, the table."""
    (arguments,) = parse(QuickstartArguments, argv, prog="notewriter quickstart", description=__doc__)
    run_here(read_pipeline(FILE, arguments.output_dir, {"model_dir": arguments.model_dir}))
