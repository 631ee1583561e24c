"""The rule that ends rounds of training early: a score has to rise from round to round.

As a program, for jobs of a cluster, which are submitted before any score is known: `UNLESS` is the metric and the runs,
separated by colons. The exit code is 0 if the rounds have ended, and `GO_ON` if not.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from notewriter.artifacts.metrics import read_metrics
from notewriter.ground.errors import UserError, run

GO_ON = 3
"""The exit code of a job's check if its round is needed."""


@dataclass(frozen=True)
class Rising:
    """The rule under which a stage of a round runs.

    Attributes:
        metric: a score in metrics.json.
        runs: the evaluation runs of the earlier rounds, the start's first. Those that do not exist do not count.
    """

    metric: str
    runs: list[str]

    def ended(self) -> str:
        """Why there are no further rounds, with the scores; empty while each round exceeds the best before it.

        Raises:
            UserError: a run does not have the score.
        """
        best: float | None = None
        for number, folder in enumerate(self.runs):
            path = Path(folder) / "metrics.json"
            if not path.exists():
                continue
            scores = read_metrics(path).metrics
            if self.metric not in scores:
                known = ", ".join(scores)
                raise UserError(f"{path}: has no score {self.metric!r}; name one of {known} in while_rising")
            score = scores[self.metric].mean
            if best is not None and score <= best:
                return f"round {number} did not raise {self.metric} above {best:.3f} ({score:.3f})"
            best = score
        return ""

    @property
    def unless(self) -> str:
        """The rule as the value of `UNLESS`."""
        return ":".join([self.metric, *self.runs])


def main() -> None:
    """Check the rule in the environment."""
    metric, *runs = os.environ["UNLESS"].split(":")
    if not (reason := Rising(metric, runs).ended()):
        sys.exit(GO_ON)
    sys.stdout.write(f"skipped: {reason}\n")


if __name__ == "__main__":
    run(main)
