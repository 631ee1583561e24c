"""The curves of a training run whose checkpoints were evaluated."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from notewriter.artifacts.best_checkpoint import BEST_CHECKPOINT, NAME, BestCheckpoint
from notewriter.pages.charts import Dot, Panel, panels
from notewriter.training.publishing.curves import newest_log, points

LOGGED = {"Loss": ("loss", "eval_loss"), "Reward margin": ("rewards/margins", "eval_rewards/margins")}
"""A panel below the score -> the trainer's logged keys for it, in training and in evaluation."""


def curves(folder: Path) -> str:
    """`draw` of the checkpoints that were evaluated into a folder; of the score alone where the last one is gone.

    Raises:
        UserError: a file is damaged.
    """
    best = BEST_CHECKPOINT.read(folder / NAME)
    return draw(best, newest_log(Path(best.checkpoints[-1].checkpoint)))


def draw(best: BestCheckpoint, history: Sequence[Mapping[str, Any]]) -> str:
    """Score, loss and reward margin against steps, as an SVG file; a panel without logged values is left out."""
    dots = [
        Dot("", each.score, x=each.step, text=f"step {each.step}: {each.score.text()}", ringed=each.step == best.step)
        for each in best.checkpoints
    ]
    shown = [Panel(f"{best.metric}, 95% interval", {"score": [(dot.x, dot.interval.mean) for dot in dots]}, dots)]
    for title, names in LOGGED.items():
        lines = {name: points(history, key) for name, key in zip(("training", "evaluation"), names, strict=True)}
        if any(lines.values()):
            shown.append(Panel(title, lines))
    shown[-1] = replace(shown[-1], axis="Training steps; the ring marks the best checkpoint")
    return panels("Score, loss and reward margin against training steps", shown)
