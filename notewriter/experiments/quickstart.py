"""`notewriter quickstart`: the whole pipeline on a generated world, evaluated before and after training.

The runs are those of the recipe pipelines/quickstart. Each is a command that can also be given by hand; it is the first
line of the run's log. Finished runs do nothing when the quickstart is started again. On an NVIDIA GPU the same runs
serve and train there, in bfloat16, with the largest SmolLM2 that its memory holds and the Hugging Face Hub gives.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from notewriter.experiments.here import run_here
from notewriter.experiments.run import commands, read_pipeline
from notewriter.ground import recipes
from notewriter.ground.config import parse
from notewriter.ground.options import option
from notewriter.models.gpus import visible_gpus
from notewriter.models.hub import OWNER, SMALLEST, commit_on_hub
from notewriter.models.serve_options import runs_on_cpu

FILE = recipes.file_named("pipelines/quickstart")

NEEDED = {"SmolLM2-1.7B-Instruct": 60, "SmolLM2-360M-Instruct": 18}
"""The larger models -> GiB of a GPU that trains all parameters of one.

`notewriter preflight` computes 50 and 14 for four pairs of 900 + 2 x 70 tokens; libraries take more.
"""


@dataclass
class QuickstartArguments:
    """The folders of the quickstart."""

    output_dir: str = option("runs/quickstart", "the folder for all output")
    model_dir: str | None = option(
        None, "the model to start from; default: a SmolLM2 that fits the machine, fetched if missing"
    )
    dry_run: bool = option(False, "print the commands and run nothing")


def main(argv: list[str]) -> None:
    """Do the runs in order and print the output of the last one, the table."""
    (arguments,) = parse(QuickstartArguments, argv, prog="notewriter quickstart", description=__doc__)
    pipeline = read_pipeline(FILE, arguments.output_dir, for_this_machine(arguments.model_dir))
    if arguments.dry_run:
        sys.stdout.write(commands(pipeline))
    else:
        run_here(pipeline)


def for_this_machine(model_dir: str | None = None) -> dict[str, str]:
    """The pipeline's variables for the CPU, or for a GPU where there is one and vLLM is installed for it."""
    gpus = [] if runs_on_cpu() else visible_gpus()
    fitting = [name for name, gib in NEEDED.items() if gpus and gpus[0].memory >= gib << 30 and not model_dir]
    model = next(
        (name for name in fitting if Path("models", name).is_dir() or commit_on_hub(f"{OWNER}/{name}")), SMALLEST
    )
    return {
        "model": model,
        "model_dir": model_dir or f"models/{model}",
        "accelerate": "single" if gpus else "cpu",
    }
