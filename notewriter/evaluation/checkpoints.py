"""The checkpoints of a training run by what they score: the curves of the run, and the best checkpoint.

The loss on held-out pairs does not tell which checkpoint answers best, so each of them is evaluated as it would be
used, and the best is chosen by the task's score.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from notewriter.artifacts import best_checkpoint
from notewriter.artifacts.best_checkpoint import BestCheckpoint, Scored, read_best_checkpoint, write_best_checkpoint
from notewriter.artifacts.metrics import Metrics
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.evaluation.catalogue import HEADLINE
from notewriter.ground import jsonl
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import STATE, checkpoints_of
from notewriter.models.roles import ModelArguments
from notewriter.pages.charts import Dot, Panel, panels

logger = logging.getLogger(__name__)

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
    report_to: list[str] | None = field(
        default=None,
        metadata={
            "help": "trackers that the scores of the checkpoints are sent to, by step: wandb, tensorboard, mlflow, "
            "trackio, ...; `none` for none. Default: those that the training reported to"
        },
    )


@dataclass(frozen=True)
class Trackers:
    """The trackers that a training run reports to, and its project and name there."""

    names: list[str]
    project: str
    run_name: str


def find(run: Path, models: ModelArguments) -> dict[int, Path]:
    """The complete checkpoints of a training run by step, in this order.

    Raises:
        UserError: there are none, or `models` names another model to evaluate.
    """
    given = [name for name in ("serve", "base_url") if getattr(models, name)]
    given += ["models: policy"] if "policy" in models.models else []
    if given:
        raise UserError(f"both checkpoints and {given[0]} are set; give only one of them")
    found = checkpoints_of(run)
    if not found:
        raise UserError(f"{run}: has no complete checkpoint (checkpoint-STEP/{STATE}); train with save_strategy: steps")
    return found


def compare(
    found: Mapping[int, Path],
    metrics: Mapping[int, Metrics],
    best_by: str | None,
    output: Path,
    trackers: Trackers | None = None,
) -> BestCheckpoint:
    """Write the curves and the best checkpoint of a run into `output`; returns the latter.

    Among equal scores the earliest is the best. Curves that are new go to the trackers too.

    Raises:
        UserError: the checkpoints have no such score, or a file cannot be read or written.
    """
    metric = _metric(list(metrics.values()), best_by)
    scored = [Scored(str(path), step, metrics[step].metrics[metric]) for step, path in found.items()]
    first = max(scored, key=lambda each: (each.score.mean, -each.step))
    best = BestCheckpoint(metric, first.checkpoint, first.step, first.score, scored)
    jsonl.write_text(output / CURVES, [draw(best, _history(list(found.values())[-1]))])
    if trackers and not ((output / BEST).is_file() and read_best_checkpoint(output) == best):
        track(trackers, metrics, output)
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


def trackers_of(run: Path, report_to: Sequence[str] | None) -> Trackers:
    """The trackers named in `report_to`, by default those that the training in `run` reported to.

    Raises:
        UserError: accelerate knows no tracker of this name, or its package is not installed.
    """
    config = read_config(run) if (run / CONFIG).is_file() else {}
    wanted = config.get("report_to") or [] if report_to is None else report_to
    names = [str(name) for name in wanted if name != "none"]
    if names:
        from accelerate import tracking

        known, available = tracking.LOGGER_TYPE_TO_CLASS, list(map(str, tracking.get_available_trackers()))
        if report_to is not None:
            for name in names:
                choose("tracker in report_to", name, known)
                if name not in available:
                    raise UserError(f"report_to: {name} is not installed; install it, or leave out this tracker")
        for name in [name for name in names if name not in known or name not in available]:
            logger.warning("%s: training reported to %s, which is not available here; it gets no scores", run, name)
        names = [name for name in names if name in known and name in available]
    return Trackers(names, str(config.get("project") or "notewriter"), str(config.get("run_name") or run.name))


def track(trackers: Trackers, metrics: Mapping[int, Metrics], output: Path) -> None:
    """Log the mean of every score at its step, as `checkpoints/<score>`; local trackers write into `output`."""
    if not trackers.names:
        return
    from accelerate import PartialState, tracking

    PartialState()
    for name in trackers.names:
        kind: Any = tracking.LOGGER_TYPE_TO_CLASS[name]
        options = {"logging_dir": str(output)} if kind.requires_logging_directory else {}
        if name == "wandb":
            options["name"] = f"{trackers.run_name}-checkpoints"
        tracker = kind(trackers.project, **options)
        tracker.start()
        for step, one in sorted(metrics.items()):
            tracker.log({f"checkpoints/{score}": each.mean for score, each in one.metrics.items()}, step=step)
        tracker.finish()
