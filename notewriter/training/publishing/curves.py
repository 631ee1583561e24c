"""Training curves of the model card: loss, reward margin and accuracy against steps, as one SVG."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from notewriter.models.checkpoint import STATE, checkpoints_of
from notewriter.pages.charts import Panel, panels

logger = logging.getLogger(__name__)

PANELS = {
    "loss": {"training": "loss", "dev": "eval_loss"},
    "reward margin": {"training": "rewards/margins", "dev": "eval_rewards/margins"},
    "reward accuracy": {"training": "rewards/accuracies", "dev": "eval_rewards/accuracies"},
    "token accuracy": {"training": "mean_token_accuracy", "dev": "eval_mean_token_accuracy"},
}
"""Title -> line -> key of the log."""


def curves(folder: Path) -> str:
    """The curves of a run as SVG; empty unless some value was logged at two steps."""
    log = newest_log(folder)
    charts = []
    for title, keys in PANELS.items():
        lines = {name: points(log, key) for name, key in keys.items()}
        if max(map(len, lines.values())) > 1:
            charts.append(Panel(title, lines, axis="step", from_zero=False))
    return panels("Training curves", charts, columns=2) if charts else ""


def newest_log(folder: Path) -> list[dict[str, Any]]:
    """The logged values of a run, from its state or that of its last checkpoint; empty if neither can be read."""
    own, last = folder / STATE, next(reversed(checkpoints_of(folder).values()), None)
    path = own if own.is_file() else last and last / STATE
    if path is None:
        return []
    try:
        log: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["log_history"]
        return [entry for entry in log if isinstance(entry["step"], int)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s: is not the state of a training run (%s); the card has no curves", path, error)
        return []


def points(log: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of every finite logged value of a metric."""
    return [
        (entry["step"], float(entry[key]))
        for entry in log
        if isinstance(entry.get(key), int | float) and math.isfinite(entry[key])
    ]
