"""`notewriter fit-control`: fit the control `regression` on the questions of finished runs (`rollouts.regression`).

    notewriter fit-control --runs runs/train --output runs/regression.json

The runs are of training questions with supporting facts, by any method that keeps a note: the passages they found are
read, not their notes. `models: {notes: {control: regression, weights: runs/regression.json, words: 40}}` lets it write
the notes of other questions.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.evaluation.controls import readings
from notewriter.ground.config import parse
from notewriter.ground.options import option
from notewriter.ground.records import Passage, Question
from notewriter.rollouts.regression import FITTED, fitted, with_margin


@dataclass
class FitArguments:
    """The options of `notewriter fit-control`: the questions to fit it on, and the file of its weights."""

    runs: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "folders of finished runs of `evaluate` over training questions"}
    )
    output: str = field(
        metadata={"help": "the JSON file to write, with the weights and the questions that the control was fitted on"}
    )
    choose_on: list[str] = field(
        default_factory=list,
        metadata={
            "help": "folders of finished runs over further questions with supporting facts, on which a margin is "
            "chosen: a third sentence is written only if its score is within this margin of the best one, and notes "
            "have whole sentences alone. Default: notes are filled up to their number of words"
        },
    )
    encoder: str | None = option(
        None,
        "a sentence encoder, folder or hub id such as sentence-transformers/all-MiniLM-L6-v2, whose "
        "similarity of sentence and question is one more feature (the extra `dense`)",
    )


def main(argv: list[str]) -> None:
    """Fit, and print the weights, the largest first."""
    (arguments,) = parse([FitArguments], argv, prog="notewriter fit-control", description=__doc__)
    regression = fitted(_read(arguments.runs), arguments.encoder)
    if arguments.choose_on:
        regression = with_margin(regression, _read(arguments.choose_on))
    FITTED.write(Path(arguments.output), regression)
    for name, weight in sorted(regression.weights.items(), key=lambda each: -abs(each[1])):
        sys.stdout.write(f"  {name:30}  {weight:+.2f}\n")
    if regression.margin is not None:
        sys.stdout.write(f"  {'margin of a third sentence':30}   {regression.margin:.2f}\n")
    sys.stdout.write(f"{arguments.output}: fitted on {len(regression.questions)} questions\n")


def _read(runs: Sequence[str]) -> Iterator[tuple[Question, list[Passage]]]:
    return ((each.question, list(each.passages)) for run in runs for each in readings(Path(run)))
