"""Run folders in memory, as the report needs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from notewriter.artifacts.costs import Costs, read_costs
from notewriter.artifacts.judgements import FOLDER
from notewriter.artifacts.metrics import Metrics, read_metrics
from notewriter.artifacts.predictions import Prediction, read_predictions
from notewriter.artifacts.reading import check_present, read_text
from notewriter.ground.errors import UserError

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#5b5b5b")
"""Assigned to runs in turn; Okabe and Ito's palette, which colour-blind readers can tell apart."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, without its traces.

    Args:
        folder: its path.
        label: what the report calls it.
        colour: its colour in plots, as CSS.
        metrics: metrics.json.
        config: config.yaml, as text.
        costs: costs.json; None where it is missing.
        judging: what judging the run cost; None where it was not judged.
        predictions: by question id.
    """

    folder: Path
    label: str
    colour: str
    metrics: Metrics
    config: str
    costs: Costs | None
    judging: Costs | None
    predictions: dict[str, Prediction]


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run folders; each is labelled with its name, or with its folder where two have the same name.

    Raises:
        UserError: a folder given twice, or files that are missing or malformed.
    """
    metrics = [read_metrics(folder / "metrics.json") for folder in folders]
    names = [each.name for each in metrics]
    labels = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label}: given twice in --runs; give each run once")
    for folder in folders:
        check_present(folder / "traces.jsonl")
    return [
        Run(
            folder=folder,
            label=label,
            colour=COLOURS[index % len(COLOURS)],
            metrics=metrics[index],
            config=read_text(folder / "config.yaml"),
            costs=read_costs(folder / "costs.json"),
            judging=read_costs(folder / FOLDER / "costs.json"),
            predictions=read_predictions(folder / "predictions.jsonl"),
        )
        for index, (folder, label) in enumerate(zip(folders, labels, strict=True))
    ]
