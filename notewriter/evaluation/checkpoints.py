"""The checkpoints of a training run by their scores, and the best of them; `notewriter report` draws the curves.

The loss on held-out pairs does not tell which checkpoint answers best, so each of them is evaluated as it would be
used, and the best is chosen by the task's score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from notewriter.artifacts import best_checkpoint
from notewriter.artifacts.best_checkpoint import BEST_CHECKPOINT, BestCheckpoint, Scored
from notewriter.artifacts.metrics import Metrics
from notewriter.evaluation.catalogue import HEADLINE, metric_named
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.models.checkpoint import STATE, checkpoints_of
from notewriter.models.roles import ModelArguments, policies_in

BEST = best_checkpoint.NAME


@dataclass
class CheckpointArguments:
    """Evaluate each checkpoint of a training run instead of one model."""

    checkpoints: str | None = option(
        None,
        "the folder of a training run, in place of --serve: serve and evaluate its checkpoints one after "
        "another, each in a folder of its name in output_dir, and name the checkpoint with the best score "
        f"({BEST}); report draws score, loss and reward margin of output_dir against steps",
    )
    best_by: str | None = option(None, f"the score that decides; default: the first of {', '.join(HEADLINE)}")


def find(run: Path, models: ModelArguments) -> dict[int, Path]:
    """The complete checkpoints of a training run by step, in this order.

    Raises:
        UserError: there are none, or `models` names another model to evaluate.
    """
    if given := policies_in(models):
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
    """Write the best checkpoint of a run into `output`, and return it.

    Among equal scores the earliest is the best.

    Raises:
        UserError: the checkpoints have no such score, or a file cannot be read or written.
    """
    metric = _metric(list(metrics.values()), best_by)
    scored = [Scored(str(path), step, metrics[step].metrics[metric]) for step, path in paths.items()]
    sign = -1 if metric_named(metric).better == "lower" else 1
    first = max(scored, key=lambda each: (sign * each.score.mean, -each.step))
    best = BestCheckpoint(metric, first.checkpoint, first.step, first.score, scored)
    BEST_CHECKPOINT.write(output / BEST, best)
    return best


def _metric(metrics: Sequence[Metrics], best_by: str | None) -> str:
    common = [name for name in metrics[0].metrics if all(name in each.metrics for each in metrics)]
    if best_by is not None and best_by not in common:
        raise UserError(f"best_by: {best_by!r} is not a score of every checkpoint; choose one of: {', '.join(common)}")
    chosen = best_by or next((name for name in (*HEADLINE, *common) if name in common), None)
    if chosen is None:
        raise UserError("best_by: the checkpoints have no score in common; look for errors in their traces.jsonl")
    return chosen
