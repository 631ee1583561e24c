"""`notewriter results FILE`: the page of an experiment, from its run folders.

    notewriter results experiments/e1 --output docs/results/e1.md

The key `results` of the pipeline file says which runs are compared; give the command the same `--set` and
`--output_dir` as the pipeline. Runs that do not exist yet are listed as not run; before the first one, the page
has only the question and the commands.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.evaluation.catalogue import metric_named
from notewriter.experiments.experiment import read_experiment
from notewriter.experiments.files import changes_of
from notewriter.experiments.results_page import Evaluations, page_of, plots_of
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError

PLOTS = 2
"""How many of the metrics that are shares have a plot, from the first on; its axis ends at 1."""


@dataclass
class ResultsArguments:
    """The experiment, and where its page is written."""

    file: Annotated[str, MinLen(1)] = field(
        metadata={"help": "the experiment: a pipeline file or a recipe; `--file` may be omitted if it comes first"}
    )
    output: str = field(metadata={"help": "the Markdown file to write; plots are SVG files beside it"})
    output_dir: str | None = field(
        default=None, metadata={"help": "the folder of the runs, in place of the one in the file"}
    )
    set: list[str] = field(
        default_factory=list, metadata={"help": "variables of the file with other values: NAME=VALUE ..."}
    )


def main(argv: list[str]) -> None:
    """Write the page and its plots."""
    command = ["notewriter", "results", *argv]
    if argv and not argv[0].startswith("-"):
        argv = ["--file", *argv]
    (arguments,) = parse(ResultsArguments, argv, prog="notewriter results", description=__doc__)
    output = Path(arguments.output)
    if output.suffix != ".md":
        raise UserError(f"--output {output}: is not a Markdown file; give a path that ends with .md")
    experiment, pipeline = read_experiment(Path(arguments.file), arguments.output_dir, changes_of(arguments.set))
    shares = [metric for metric in experiment.metrics if metric_named(metric).share]
    evaluations = Evaluations(experiment)
    plots = plots_of(evaluations, shares[:PLOTS])
    files = {metric: f"{output.stem}-{metric}.svg" for metric in plots}
    page = page_of(evaluations, pipeline, command, files)
    for metric, file in files.items():
        jsonl.write_text(output.with_name(file), [plots[metric]])
    jsonl.write_text(output, [page])
    sys.stdout.write(f"{output}: written\n")
