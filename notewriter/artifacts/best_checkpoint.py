"""best_checkpoint.json: the scores of the checkpoints of a training run, and the best of them."""

from dataclasses import dataclass

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.reading import Artifact

NAME = "best_checkpoint.json"


@dataclass(frozen=True)
class Scored:
    """A checkpoint and its score."""

    checkpoint: str
    step: int
    score: Interval


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint with the best score of a metric, and those that it was compared with."""

    metric: str
    checkpoint: str
    step: int
    score: Interval
    checkpoints: list[Scored]


BEST_CHECKPOINT = Artifact(
    BestCheckpoint, "notewriter/best_checkpoint/1", "run notewriter evaluate --checkpoints again"
)
"""The file, which marks the comparison as finished."""
