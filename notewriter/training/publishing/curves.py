"""Training curves of the model card: loss, reward margin and accuracy against steps, as one SVG."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from notewriter.ground import jsonl, typed
from notewriter.models.checkpoint import STATE, checkpoints_of
from notewriter.pages.charts import Panel, panels

PANELS = {
    "loss": {"training": "loss", "dev": "eval_loss"},
    "reward margin": {"training": "rewards/margins", "dev": "eval_rewards/margins"},
    "reward accuracy": {"training": "rewards/accuracies", "dev": "eval_rewards/accuracies"},
    "token accuracy": {"training": "mean_token_accuracy", "dev": "eval_mean_token_accuracy"},
}
"""Title -> line -> key of the log."""


class Entry(TypedDict):
    """The logged values of a step."""

    step: int


class TrainerState(TypedDict):
    """The part of a `trainer_state.json` that is shown."""

    log_history: list[Entry]


def curves(folder: Path) -> str:
    """The curves of a run as SVG; empty unless some value was logged at two steps.

    Raises:
        UserError: as `newest_log`.
    """
    log = newest_log(folder)
    charts = []
    for title, keys in PANELS.items():
        lines = {name: points(log, key) for name, key in keys.items()}
        if max(map(len, lines.values())) > 1:
            charts.append(Panel(title, lines, axis="step", from_zero=False))
    return panels("Training curves", charts, columns=2) if charts else ""


def newest_log(folder: Path) -> list[dict[str, Any]]:
    """The logged values of a run, from its state or that of its last checkpoint; empty if it has neither.

    Raises:
        UserError: the state is damaged; names the file, the entry and the key.
    """
    own, last = folder / STATE, next(reversed(checkpoints_of(folder).values()), None)
    path = own if own.is_file() else last and last / STATE
    if path is None:
        return []
    remedy = "it is not as a training wrote it: remove it, or copy it again"
    state: TrainerState = jsonl.read_object(path, TrainerState, remedy)
    log: list[dict[str, Any]] = [{**entry} for entry in state["log_history"]]
    for number, entry in enumerate(log):
        for key in {key for line in PANELS.values() for key in line.values()} & entry.keys():
            # A training that diverges logs NaN.
            if not isinstance(value := entry[key], float):
                typed.read(value, float, f"{path}: log_history[{number}]: {key}", remedy)
    return log


def points(log: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of every finite logged value of a metric."""
    return [
        (entry["step"], float(entry[key]))
        for entry in log
        if isinstance(entry.get(key), int | float) and math.isfinite(entry[key])
    ]
