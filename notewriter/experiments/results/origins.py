"""What an evaluated model was made from, by the records of the runs that led to it, and what these cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter.artifacts import statistics
from notewriter.artifacts.reading import read_json
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.run_record import read_run_record
from notewriter.artifacts.training_record import TrainingRecord, read_training_record


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
    """The training runs and data behind the models of an evaluation run; empty if none of them was trained here.

    Raises:
        UserError: a configuration on the way is damaged.
    """
    trainings: list[Path] = []
    data: list[Path] = []
    config = read_config(evaluation)
    for endpoint in [config, *(config.get("models") or {}).values()]:
        way = list(_trainings(endpoint.get("served") or endpoint.get("serve")))
        for folder, training in reversed(way):
            trainings.append(folder)
            named = [training.get("pairs"), training.get("data"), *(training.get("mix") or {})]
            data += [Path(path) for path in named if path]
    return Origins(list(dict.fromkeys(trainings)), list(dict.fromkeys(data)))


def _trainings(checkpoint: str | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The training runs that led to a checkpoint with their configurations, the last one first."""
    while checkpoint and (Path(checkpoint) / CONFIG).is_file():
        config = read_config(Path(checkpoint))
        yield Path(checkpoint), config
        checkpoint = config.get("model_name_or_path")


@dataclass(frozen=True)
class TrainingCost:
    """The sums over training runs: optimizer steps, rows seen, tokens computed on, seconds; None if unknown."""

    steps: int = 0
    rows: int = 0
    tokens: int | None = 0
    seconds: float | None = 0.0


def training_cost(origins: Origins) -> TrainingCost:
    """What the training runs cost, by their records."""
    total = TrainingCost()
    for folder in origins.trainings:
        if (record := read_training_record(folder)) is None:
            continue
        run = read_run_record(folder)
        # The recorded seconds are those of the last start, which may only have written the record.
        seconds = None if run and len(run.starts) > 1 else record.metrics.get("train_runtime")
        tokens = record.metrics.get("num_tokens")
        total = TrainingCost(
            steps=total.steps + (record.steps or 0),
            rows=total.rows + _rows_seen(record),
            tokens=None if tokens is None or total.tokens is None else total.tokens + round(tokens),
            seconds=None if seconds is None or total.seconds is None else total.seconds + seconds,
        )
    return total


def _rows_seen(record: TrainingRecord) -> int:
    """Rows that the optimizer steps had; the last step of an epoch has what is left of them."""
    rows = sum(record.rows.get("train", {}).values())
    if rows and "epoch" in record.metrics:
        return round(record.metrics["epoch"] * rows)
    return (record.steps or 0) * int(record.hyperparameters.get("batch_size", 0))


def statistics_of(folders: list[Path]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Each folder of data that has statistics, with them."""
    for folder in folders:
        path = folder / statistics.NAME
        if path.is_file():
            record = read_json(path, "restore the file")
            if isinstance(record, dict):
                yield folder, record
