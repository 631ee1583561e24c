"""The checkpoints of a training run by what they score: the curves of the run, and the best checkpoint.

The loss on held-out pairs does not tell which checkpoint answers best, so each of them is evaluated as it would be
used, and the best is chosen by the task's score.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from notewriter.artifacts import best_checkpoint
from notewriter.artifacts.best_checkpoint import BestCheckpoint, Scored, write_best_checkpoint
from notewriter.artifacts.metrics import Metrics
from notewriter.evaluation.catalogue import HEADLINE
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import STATE, checkpoints_of
from notewriter.models.roles import ModelArguments
from notewriter.pages.charts import Dot, Panel, panels

BEST = best_checkpoint.NAME
CURVES = "checkpoints.svg"

LOGGED = {"Loss": ("loss", "eval_loss"), "Reward margin": ("rewards/margins", "eval_rewards/margins")}
"""A panel below the score -> what the trainer logs for it, in training and in evaluation."""


@dataclass
class CheckpointArguments:
    """Evaluate each checkpoint of a training run instead of one model."""

    checkpoints: str | None = field(
        default=None,
        metadata={
            "help": "the folder of a training run, in place of --serve: serve and evaluate its checkpoints one after "
            "another, each in a folder of its name in output_dir; plot score, loss and reward margin against steps "
            f"({CURVES}) and name the checkpoint with the best score ({BEST})"
        },
    )
    best_by: str | None = field(
        default=None, metadata={"help": f"the score that decides; default: the first of {', '.join(HEADLINE)}"}
    )


def find(run: Path, models: ModelArguments) -> dict[int, Path]:
    """The complete checkpoints of a training run by step, in this order.

    Raises:
        UserError: there are none, or `models` names another model to evaluate.
    """
    given = [name for name in ("serve", "base_url") if getattr(models, name)]
    given += ["models: policy"] if "policy" in models.models else []
    if given:
        raise UserError(f"both checkpoints and {given[0]} are set; give only one of them")
    paths = checkpoints_of(run)
    if not paths:
        raise UserError(f"{run}: has no complete checkpoint (checkpoint-STEP/{STATE}); train with save_strategy: steps")
    return paths


def compare(
    paths: Mapping[int, Path],
    metrics: Mapping[int, Metrics],
    best_by: str | None,
    output: Path,
) -> BestCheckpoint:
    """Write the curves and the best checkpoint of a run into `output`; returns the latter.

    Among equal scores the earliest is the best.

    Raises:
        UserError: the checkpoints have no such score, or a file cannot be read or written.
    """
    metric = _metric(list(metrics.values()), best_by)
    scored = [Scored(str(path), step, metrics[step].metrics[metric]) for step, path in paths.items()]
    first = max(scored, key=lambda each: (each.score.mean, -each.step))
    best = BestCheckpoint(metric, first.checkpoint, first.step, first.score, scored)
    jsonl.write_text(output / CURVES, [draw(best, _history(list(paths.values())[-1]))])
    write_best_checkpoint(output, best)
    return best


def _metric(metrics: Sequence[Metrics], best_by: str | None) -> str:
    common = [name for name in metrics[0].metrics if all(name in each.metrics for each in metrics)]
    if best_by is not None and best_by not in common:
        raise UserError(f"best_by: {best_by!r} is not a score of every checkpoint; choose one of: {', '.join(common)}")
    chosen = best_by or next((name for name in (*HEADLINE, *common) if name in common), None)
    if chosen is None:
        raise UserError("best_by: the checkpoints have no score in common; look for errors in their traces.jsonl")
    return chosen


def _history(checkpoint: Path) -> list[dict[str, Any]]:
    """What the trainer logged up to a checkpoint, an entry a step."""
    state: dict[str, Any] = jsonl.read_object(checkpoint / STATE, dict, "restore the file or remove the checkpoint")
    history = state.get("log_history")
    return [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []


def draw(best: BestCheckpoint, history: Sequence[Mapping[str, Any]]) -> str:
    """Score, loss and reward margin against steps, as an SVG file; a panel of which nothing was logged is left out."""
    dots = [
        Dot(
            "",
            *(each.score.mean, each.score.low, each.score.high),
            x=each.step,
            text=f"step {each.step}: {each.score.text()}",
            ringed=each.step == best.step,
        )
        for each in best.checkpoints
    ]
    shown = [Panel(f"{best.metric}, 95% interval", {"score": [(dot.x, dot.mean) for dot in dots]}, dots)]
    for title, names in LOGGED.items():
        lines = {name: _line(history, key) for name, key in zip(("training", "evaluation"), names, strict=True)}
        if any(lines.values()):
            shown.append(Panel(title, lines))
    shown[-1] = replace(shown[-1], axis="Training steps; the ring marks the best checkpoint")
    return panels("Score, loss and reward margin against training steps", shown)


def _line(history: Sequence[Mapping[str, Any]], key: str) -> list[tuple[int, float]]:
    points = [(entry.get("step"), entry.get(key)) for entry in history]
    return [
        (step, float(value))
        for step, value in points
        if isinstance(step, int) and isinstance(value, int | float) and math.isfinite(value)
    ]
