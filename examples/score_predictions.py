"""Score predictions with a benchmark's metric family.

    python examples/score_predictions.py --questions questions.jsonl --predictions predictions.jsonl --family hotpotqa

`questions.jsonl` has `id`, `question` and `answers` on each line, `predictions.jsonl` has `id` and `prediction`. A
question without a prediction scores as an empty one. The interval is a 95% bootstrap interval over questions.
"""

import argparse
from pathlib import Path
from typing import TypedDict

from notewriter.datasets import load_questions
from notewriter.evaluation.metrics import FAMILIES
from notewriter.evaluation.scoring import score_answers
from notewriter.ground import jsonl, typed
from notewriter.ground.errors import run


class Prediction(TypedDict):
    """A line of `predictions.jsonl`."""

    id: str
    prediction: str


def main() -> None:
    """Parse the command line, score, and print the mean of each metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--family", choices=FAMILIES, default="hotpotqa")
    arguments = parser.parse_args()

    questions = load_questions("jsonl", arguments.questions)
    predictions = {}
    for line, record in jsonl.read(arguments.predictions):
        read = typed.read(record, Prediction, f"{arguments.predictions}:{line}", "correct the line")
        predictions[read["id"]] = read["prediction"]
    metrics = score_answers(predictions, questions, arguments.family)
    for metric in FAMILIES[arguments.family].metrics:
        print(f"{metric.label}: {metrics.metrics[metric.name].text()}, {metrics.questions} questions")


if __name__ == "__main__":
    # Errors that a user can fix become one line.
    run(main)
