"""The origins of evaluated models, by the records of the runs that led to them, and their cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.run_record import read_run_record
from notewriter.artifacts.statistics import own_statistics
from notewriter.artifacts.training_record import TrainingRecord, read_training_record
from notewriter.pages.tables import Table
from notewriter.results.runs import Run


class Origins(NamedTuple):
    """The runs that led to a model.

    Attributes:
        trainings: training runs, the first one first.
        data: the folders of pairs and chains that they trained on, each once, in that order.
    """

    trainings: list[Path]
    data: list[Path]


def origins_of(evaluation: Path) -> Origins:
    """The training runs and data behind the models of an evaluation run; empty if none of them was trained here.

    Raises:
        UserError: a configuration on the way is damaged.
    """
    trainings: list[Path] = []
    data: list[Path] = []
    config = read_config(evaluation)
    for endpoint in [config, *(config.get("models") or {}).values()]:
        way = list(_trainings(endpoint.get("serve")))
        for folder, training in reversed(way):
            trainings.append(folder)
            folders = [training.get("pairs"), training.get("data"), *(training.get("mix") or {})]
            data += [Path(path) for path in folders if path]
    return Origins(list(dict.fromkeys(trainings)), list(dict.fromkeys(data)))


def _trainings(checkpoint: str | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The training runs that led to a checkpoint with their configurations, the last one first."""
    seen = set[Path]()
    while checkpoint and (Path(checkpoint) / CONFIG).is_file() and (folder := Path(checkpoint).resolve()) not in seen:
        # A folder may say that it was trained from itself.
        seen.add(folder)
        config = read_config(Path(checkpoint))
        yield Path(checkpoint), config
        checkpoint = config.get("model_name_or_path")


def _training_cost(folder: Path) -> list[float | None]:
    """Optimizer steps, rows seen, tokens computed on and seconds of a training run; None where that is unknown."""
    if (record := read_training_record(folder)) is None:
        return [0, 0, 0, 0]
    run = read_run_record(folder)
    # The recorded seconds are those of the last start, which may only have written the record.
    seconds = None if run and len(run.starts) > 1 else record.metrics.get("train_runtime")
    return [record.steps or 0, _rows_seen(record), record.metrics.get("num_tokens"), seconds]


def _rows_seen(record: TrainingRecord) -> int:
    """Rows of all optimizer steps; the last step of an epoch has the remaining ones."""
    rows = sum(record.rows.get("train", {}).values())
    if rows and "epoch" in record.metrics:
        return round(record.metrics["epoch"] * rows)
    return (record.steps or 0) * int(record.hyperparameters.get("batch_size", 0))


def statistics_of(folders: list[Path]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Each folder of data that has statistics of ours, with them.

    Raises:
        UserError: they are damaged.
    """
    for folder in folders:
        if record := own_statistics(folder):
            yield folder, record


def training_costs(origins: Mapping[str, Sequence[Origins]]) -> Table:
    """Cell -> the costs of training and rollouts behind its models, as means over the seeds."""
    header = ["cell", "steps", "rows seen", "tokens trained on", "seconds"]
    header += ["rollout prompt tokens", "rollout completion tokens"]
    rows = []
    for cell, seeds in origins.items():
        spent = [[*_sums(map(_training_cost, each.trainings)), *_rollout_tokens(each)] for each in seeds]
        rows.append([cell, *map(_mean, zip(*spent, strict=True))])
    return "Training and rollouts", header, rows


def _sums(costs: Iterable[list[float | None]]) -> list[float | None]:
    """The sum of each of `_training_cost`; None if one of the runs does not know it."""
    columns = zip([0, 0, 0, 0], *costs, strict=True)
    return [None if None in column else sum(filter(None, column)) for column in columns]


def _rollout_tokens(origins: Origins) -> list[int]:
    """Prompt and completion tokens of the rollouts."""
    made = [record["tokens_in_all"] for _, record in statistics_of(origins.data)]
    return [sum(tokens.get(kind, 0) for tokens in made) for kind in ("prompt_tokens", "completion_tokens")]


def evaluation_costs(runs: Mapping[str, Sequence[Run]]) -> Table:
    """Cell -> its evaluation runs: calls, tokens and seconds per question."""
    rows = []
    for cell, evaluated in runs.items():
        asked = sum(run.metrics.questions for run in evaluated)
        sums = [
            sum(run.metrics.per_question[cost] * run.metrics.questions for run in evaluated)
            for cost in ("calls", "prompt_tokens", "completion_tokens")
        ]
        sums.append(sum(run.costs.total.seconds for run in evaluated if run.costs))
        rows.append([cell, *(f"{each / asked:,.1f}" for each in sums)])
    return "Evaluation, per question", ["cell", "calls", "prompt tokens", "completion tokens", "seconds"], rows


def overlaps(origins: Iterable[Sequence[Origins]]) -> Table:
    """Each evaluation file against each folder of training data, as recorded when the data was made."""
    rows = {}
    for folder, record in statistics_of([path for seeds in origins for each in seeds for path in each.data]):
        for file, overlap in record["hygiene"]["evaluation_files"].items():
            dropped = overlap["training_questions_dropped"]
            rows[folder, file] = [str(folder), str(file), str(overlap["questions"]), str(dropped)]
    header = ["training data", "evaluation file", "its questions", "training questions left out for overlap"]
    return "Compared when the data was made; what overlapped is not in it", header, list(rows.values())


def _mean(values: Iterable[float | None]) -> str:
    """The mean of the values that are known."""
    numbers = [value for value in values if value is not None]
    return f"{sum(numbers) / len(numbers):,.0f}" if numbers else "unknown"
