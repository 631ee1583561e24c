"""Run folders in memory, as the report needs them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.accounting import COSTS_SCHEMA, COUNTED
from eval.compare import check_present, read_metrics, read_predictions, read_text
from eval.judgements import FOLDER
from notewriter.errors import UserError

Record = dict[str, Any]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#5b5b5b")
"""One a run, in turn; Okabe and Ito's palette, which colour-blind readers can tell apart."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder: everything in it but the traces; `predictions` are records by question id, `judging` are costs."""

    folder: Path
    label: str
    colour: str
    metrics: Record
    config: str
    costs: Record | None
    judging: Record | None
    predictions: dict[str, Record]


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run folders; each goes by its own name, or by its folder where two have the same name.

    Raises:
        UserError: a run named twice, or files in a run that are missing or malformed.
    """
    metrics = [read_metrics(folder) for folder in folders]
    names = [each["name"] for each in metrics]
    labels = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label}: is named twice in --runs; name each run once")
    for folder in folders:
        check_present(folder / "traces.jsonl")
    return [
        Run(
            folder=folder,
            label=label,
            colour=COLOURS[index % len(COLOURS)],
            metrics=metrics[index],
            config=read_text(folder / "config.yaml"),
            costs=_read_costs(folder / "costs.json"),
            judging=_read_costs(folder / FOLDER / "costs.json"),
            predictions=read_predictions(folder),
        )
        for index, (folder, label) in enumerate(zip(folders, labels, strict=True))
    ]


def _read_costs(path: Path) -> Record | None:
    """Sums by stage from costs.json with their total, None where a run has none."""
    if not path.exists():
        return None
    try:
        record = json.loads(read_text(path))
        if record["schema"] != COSTS_SCHEMA:
            raise ValueError(f"the schema {record['schema']!r}")
        stages = {stage: {key: float(costs[key]) for key in COUNTED} for stage, costs in record["stages"].items()}
        return {
            "stages": stages,
            "total": {key: sum(costs[key] for costs in stages.values()) for key in COUNTED},
            "counts": {str(event): int(number) for event, number in record["counts"].items()},
            "compression": record["compression"] and float(record["compression"]),
            "money": float(record["money"]) if "money" in record else None,
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise UserError(f"{path}: is not what an evaluation or a judge writes (at {error}); run that again") from error
