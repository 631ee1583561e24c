"""Trackers of experiments (Weights & Biases, TensorBoard, trackio, ...) for runs that do not train.

accelerate knows them; training reports to the same ones through transformers, by the same option.
"""

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError, one_line

logger = logging.getLogger(__name__)

PROJECT = "notewriter"

ID = "tracker_run_id"
"""The file in a run folder with the run's id in trackers."""

Track = Callable[[Mapping[str, float], int | None], None]
"""Takes figures by name, and the number of questions that they are of."""


def run_id(folder: Path) -> str:
    """The id of a run in trackers, kept in its folder: a run that resumes goes on there too."""
    file = folder / ID
    if not file.is_file():
        jsonl.write_text(file, [secrets.token_hex(6) + "\n"])
    return file.read_text(encoding="utf-8").strip()


@contextlib.contextmanager
def tracking(names: Sequence[str], folder: Path, settings: Mapping[str, Any]) -> Iterator[Track]:
    """A sender of figures to the trackers of these names, for the run in a folder; without names it sends nothing.

    The run has the folder's name. A tracker that fails later is warned of once, and the run goes on.

    Raises:
        UserError: there is no such tracker, its package is missing, or it cannot be started.
    """
    trackers = [_start(name, folder, settings) for name in names if name != "none"]

    def track(figures: Mapping[str, float], step: int | None = None) -> None:
        for tracker in list(trackers):
            try:
                tracker.log(dict(figures), step=step)
            except Exception as error:
                # A service that is down must not end a run of hours.
                trackers.remove(tracker)
                logger.warning("report_to: %s: gets no more figures (%s)", tracker.name, one_line(error)[:200])

    try:
        yield track
    finally:
        for tracker in trackers:
            with contextlib.suppress(Exception):
                tracker.finish()


def _start(name: str, folder: Path, settings: Mapping[str, Any]) -> Any:
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    # Its trackers log through it; without a GPU, which belongs to the server.
    PartialState(cpu=True)
    if name not in LOGGER_TYPE_TO_CLASS:
        raise UserError(f"report_to: there is no tracker {name!r}; choose from: {', '.join(LOGGER_TYPE_TO_CLASS)}")
    if name not in {str(getattr(each, "value", each)) for each in get_available_trackers()}:
        raise UserError(f"report_to: the package of {name} is not installed; pip install {name}")
    kind: Any = LOGGER_TYPE_TO_CLASS[name]
    own = {
        "wandb": {"name": folder.name, "dir": str(folder), "id": run_id(folder), "resume": "allow"},
        "trackio": {"name": folder.name, "resume": "allow"},
    }.get(name, {})
    if kind.requires_logging_directory:
        own["logging_dir"] = str(folder)
    try:
        tracker = kind(PROJECT, **own)
        tracker.start()
        plain = {key: value for key, value in settings.items() if isinstance(value, str | int | float | bool)}
        tracker.store_init_configuration(plain)
    except Exception as error:
        raise UserError(
            f"report_to: {name} cannot be started ({one_line(error)[:200]}); correct its settings, or leave it out"
        ) from error
    return tracker
