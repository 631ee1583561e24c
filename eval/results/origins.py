"""What an evaluated model was made from, by the records of the runs that led to it, and what these cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter.artifacts import statistics
from notewriter.artifacts.reading import read_json
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.training_record import read_training_record


@dataclass
class Origins:
    """The runs that led to a model.

    Attributes:
        trainings: training runs, the first one first.
        data: the folders of pairs and chains that they trained on, each once, in that order.
    """

    trainings: list[Path] = field(default_factory=list)
    data: list[Path] = field(default_factory=list)


def origins_of(evaluation: Path) -> Origins:
    """The training runs and data behind the model of an evaluation run; empty for a model that was not trained here.

    Raises:
        UserError: a configuration on the way is damaged.
    """
    origins = Origins()
    config = read_config(evaluation)
    checkpoint = config.get("served") or config.get("serve")
    while checkpoint and (Path(checkpoint) / CONFIG).is_file():
        folder = Path(checkpoint)
        config = read_config(folder)
        origins.trainings.insert(0, folder)
        named = [config.get("pairs"), config.get("data"), *(config.get("mix") or {})]
        origins.data = [Path(path) for path in named if path] + origins.data
        checkpoint = config.get("model_name_or_path")
    origins.data = list(dict.fromkeys(origins.data))
    return origins


@dataclass(frozen=True)
class TrainingCost:
    """The sums over training runs: optimizer steps, rows seen, tokens computed on (None if unknown), seconds."""

    steps: int = 0
    rows: int = 0
    tokens: int | None = 0
    seconds: float = 0.0


def training_cost(origins: Origins) -> TrainingCost:
    """What the training runs cost, by their records."""
    total = TrainingCost()
    for record in filter(None, map(read_training_record, origins.trainings)):
        batch = int(record.hyperparameters.get("batch_size", 0))
        tokens = record.metrics.get("num_tokens")
        total = TrainingCost(
            steps=total.steps + (record.steps or 0),
            rows=total.rows + (record.steps or 0) * batch,
            tokens=None if tokens is None or total.tokens is None else total.tokens + round(tokens),
            seconds=total.seconds + record.metrics.get("train_runtime", 0.0),
        )
    return total


def statistics_of(folders: list[Path]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Each folder of data that has statistics, with them."""
    for folder in folders:
        path = folder / statistics.NAME
        if path.is_file():
            record = read_json(path, "restore the file")
            if isinstance(record, dict):
                yield folder, record
