"""Experiment trackers: the scores of a training run's checkpoints beside the curves of its training."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notewriter.artifacts.metrics import Metrics
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trackers:
    """The trackers that a training run reports to, and its project and name there."""

    names: list[str]
    project: str
    run_name: str


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
