"""`notewriter fit-control`: fit the control `regression` on the questions of finished runs (`rollouts.regression`).

    notewriter fit-control --runs runs/train --output runs/regression.json

The runs are of training questions with supporting facts, by any method that keeps a note: the passages they found are
read, not their notes. `models: {notes: {control: regression, weights: runs/regression.json, words: 40}}` lets it write
the notes of other questions.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.evaluation.controls import readings
from notewriter.ground.config import parse
from notewriter.rollouts.regression import FITTED, fitted


@dataclass
class FitArguments:
    """What it is fitted on, and where its weights are written."""

    runs: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "folders of finished runs of `evaluate` over training questions"}
    )
    output: str = field(metadata={"help": "the JSON file to write: its weights, and the questions that it has seen"})
    encoder: str | None = field(
        default=None,
        metadata={
            "help": "a sentence encoder, folder or hub id such as sentence-transformers/all-MiniLM-L6-v2, whose "
            "similarity of sentence and question is one more feature (the extra `dense`)"
        },
    )


def main(argv: list[str]) -> None:
    """Fit, and print the weights, those that tell most first."""
    (arguments,) = parse([FitArguments], argv, prog="notewriter fit-control", description=__doc__)
    read = [each for run in arguments.runs for each in readings(Path(run))]
    regression = fitted(((each.question, list(each.passages)) for each in read), arguments.encoder)
    FITTED.write(Path(arguments.output), regression)
    for name, weight in sorted(regression.weights.items(), key=lambda each: -abs(each[1])):
        sys.stdout.write(f"  {name:30}  {weight:+.2f}\n")
    sys.stdout.write(f"{arguments.output}: fitted on {len(regression.questions)} questions\n")
