"""The run folder of a training run: opened by the main process, resumed from its last checkpoint."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainingArguments

from notewriter.artifacts.run_folder import RunFolder, defaults
from notewriter.artifacts.training_record import TRAINING_RECORD
from notewriter.ground.errors import UserError
from notewriter.models.checkpoints import checkpoints_of
from notewriter.training.options import resolve

Result = TypeVar("Result")

WITHOUT_EFFECT = frozenset(
    {
        *("output_dir", "pairs", "data", "report_to", "run_name", "project", "disable_tqdm", "log_level"),
        *("logging_steps", "save_steps", "save_total_limit", "dataset_num_proc", "dataloader_num_workers"),
        *("precompute_ref_batch_size", "reference_cache", "ddp_timeout", "peak_tflops"),
    }
)
"""Options that may differ when a run resumes: where it logs and what it keeps, not what it computes."""

SAME_BATCH = frozenset({"per_device_train_batch_size", "gradient_accumulation_steps"})
"""Options that `total_batch_size` makes up for, on another number of processes."""


def run_folder(training: TrainingArguments, inputs: Mapping[str, str], *arguments: Any) -> RunFolder:
    """The folder of a run with these options; `inputs` are the digests of its data (`RunFolder`)."""
    config = resolve(*arguments, training)
    without_effect = WITHOUT_EFFECT | (SAME_BATCH if "total_batch_size" in config else frozenset())
    return RunFolder(
        Path(training.output_dir or ""), config, inputs, defaults(*arguments, training), without_effect=without_effect
    )


def is_finished(run: RunFolder) -> bool:
    """Whether the folder contains this run, finished; the same answer, or error, in every process.

    Raises:
        UserError: the folder contains another run, or its record cannot be written.
    """
    return on_main_process(lambda: _is_finished(run))


def _is_finished(run: RunFolder) -> bool:
    run.check()
    record = run.path / TRAINING_RECORD
    if record.is_dir():
        raise UserError(f"{record}: is a folder, where the run's record belongs; remove it")
    return record.is_file()


@contextlib.contextmanager
def open_run(run: RunFolder) -> Iterator[Path]:
    """Open the run folder in the main process; its error is every process's.

    Raises:
        UserError: as `RunFolder.open`.
    """
    with contextlib.ExitStack() as stack:
        on_main_process(lambda: stack.enter_context(run.open()))
        yield run.path


def on_main_process(work: Callable[[], Result]) -> Result:
    """What `work` returns in the main process, or the `UserError` that it raises there, in every process."""
    outcome: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            outcome[0] = work()
        except UserError as error:
            outcome[1] = error
    result: Result
    problem: UserError | None
    result, problem = broadcast_object_list(outcome)
    if problem is not None:
        raise problem
    return result


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint in a run folder; one that a killed run was still writing is skipped."""
    return next(reversed(checkpoints_of(folder).values()), None)
