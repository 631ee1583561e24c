"""Training curves of the model card: loss, reward margin and accuracy against steps, as one SVG."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from notewriter.models.checkpoints import STATE, checkpoints_of
from notewriter.pages import render

logger = logging.getLogger(__name__)

PANELS = {
    "loss": {"training": "loss", "dev": "eval_loss"},
    "reward margin": {"training": "rewards/margins", "dev": "eval_rewards/margins"},
    "reward accuracy": {"training": "rewards/accuracies", "dev": "eval_rewards/accuracies"},
    "token accuracy": {"training": "mean_token_accuracy", "dev": "eval_mean_token_accuracy"},
}
"""Title -> line -> key of the log."""

COLOURS = {"training": "#0072b2", "dev": "#d55e00"}
WIDTH, HEIGHT, GAP, TOP = 200, 110, 50, 40


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


def curves(folder: Path) -> str:
    """The curves of a run as SVG; empty unless some value was logged at two steps."""
    log = newest_log(folder)
    panels: list[dict[str, Any]] = []
    for title, keys in PANELS.items():
        lines = {name: points(log, key) for name, key in keys.items()}
        if max(map(len, lines.values())) > 1:
            panels.append(_panel(title, lines, len(panels) * (WIDTH + GAP)))
    if not panels:
        return ""
    return render(
        Path(__file__).with_name("curves.svg.jinja"),
        panels=panels,
        colours=COLOURS,
        width=len(panels) * (WIDTH + GAP) + 10,
        top=TOP,
        base=TOP + HEIGHT,
    )


def points(log: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    """(step, value) of every finite logged value of a metric."""
    return [
        (entry["step"], float(entry[key]))
        for entry in log
        if isinstance(entry.get(key), int | float) and math.isfinite(entry[key])
    ]


def _panel(title: str, lines: Mapping[str, Sequence[tuple[int, float]]], left: int) -> dict[str, Any]:
    every = [point for line in lines.values() for point in line]
    low, high = min(value for _, value in every), max(value for _, value in every)
    last = max(step for step, _ in every) or 1
    height = (high - low) or 1.0
    x = left + 46
    return {
        "title": title,
        "x": x,
        "end": x + WIDTH,
        "low": f"{low:.3g}",
        "high": f"{high:.3g}",
        "last": last,
        "lines": {
            name: [
                {"x": round(x + WIDTH * step / last, 1), "y": round(TOP + HEIGHT * (1 - (value - low) / height), 1)}
                for step, value in line
            ]
            for name, line in lines.items()
            if line
        },
    }
