"""The rule that ends rounds of training early: a score has to rise from round to round.

A rule is a metric and the evaluation runs of the start and of all earlier rounds, `METRIC:RUN:RUN`. As a program, for
jobs of a cluster, which are submitted before any score is known, this module reads the rule in `UNLESS`; its exit code
is 0 if the rounds have ended, and `GO_ON` if not.
"""

import os
import sys
from pathlib import Path

from notewriter.artifacts.metrics import read_metrics
from notewriter.ground.errors import UserError, run

GO_ON = 3
"""The exit code of a job's check if its round is needed."""


def ended(rule: str) -> str:
    """The reason for no further rounds, with the scores; empty while each round exceeds the best before it.

    Runs that do not exist do not count.

    Raises:
        UserError: a run does not have the score.
    """
    metric, *runs = rule.split(":")
    best: float | None = None
    for number, folder in enumerate(runs):
        path = Path(folder) / "metrics.json"
        if not path.exists():
            continue
        scores = read_metrics(path).metrics
        if metric not in scores:
            raise UserError(f"{path}: has no score {metric!r}; name one of {', '.join(scores)} in while_rising")
        score = scores[metric].mean
        if best is not None and score <= best:
            return f"round {number} did not raise {metric} above {best:.3f} ({score:.3f})"
        best = score
    return ""


def main() -> None:
    """Check the rule in the environment."""
    if not (reason := ended(os.environ["UNLESS"])):
        sys.exit(GO_ON)
    sys.stdout.write(f"skipped: {reason}\n")


if __name__ == "__main__":
    run(main)
