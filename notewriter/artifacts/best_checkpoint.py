"""best_checkpoint.json: what the checkpoints of a training run score, and which of them is the best."""

from dataclasses import dataclass
from pathlib import Path

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.reading import read_json, read_record, record_of, write_json

NAME = "best_checkpoint.json"
SCHEMA = "notewriter/best_checkpoint/1"
REMEDY = "run notewriter evaluate --checkpoints again"


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


def read_best_checkpoint(folder: Path) -> BestCheckpoint:
    """The best checkpoint that an evaluation in a folder named.

    Raises:
        UserError: there is no such file, or it is damaged; names the key.
    """
    path = folder / NAME
    return read_record(read_json(path, REMEDY), BestCheckpoint, SCHEMA, str(path), REMEDY)


def write_best_checkpoint(folder: Path, best: BestCheckpoint) -> None:
    """Write the file, which marks the comparison as finished.

    Raises:
        UserError: it cannot be written.
    """
    write_json(folder / NAME, record_of(best, SCHEMA))
