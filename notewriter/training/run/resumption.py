"""The run folder of a training run: opened by the main process, resumed from its last checkpoint."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from transformers import Trainer, TrainingArguments

from notewriter.artifacts.run_folder import RunFolder
from notewriter.artifacts.training_record import TRAINING_RECORD
from notewriter.ground.errors import UserError
from notewriter.ground.options import defaults, differences, with_effect
from notewriter.models.checkpoint import STATE, WEIGHTS_ONLY, checkpoints_of, zero_processes
from notewriter.models.identity import contents
from notewriter.training.options import resolve

Result = TypeVar("Result")

COPIES = "whole copies"
OF_SHARING = {"DeepSpeed": ("global_step*",), "FSDP": ("pytorch_model_fsdp*", "optimizer.bin", "optimizer_*")}
"""The sharding of a model and its optimizer -> the files in a checkpoint; otherwise each process has a whole copy."""


def run_folder(
    training: TrainingArguments, inputs: Mapping[str, str], *arguments: Any, command: Sequence[str] = ()
) -> RunFolder:
    """The folder of a run with these options; `inputs` are the digests of its data, `command` is what started it."""
    config = resolve(*arguments, training)
    kinds = (*arguments, training)

    def differing(stored: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        return differences(with_effect(stored, *kinds), with_effect(now, *kinds), defaults(*kinds))

    return RunFolder(Path(training.output_dir or ""), config, inputs, differing, partial(contents, config), command)


def is_finished(run: RunFolder) -> bool:
    """Whether the folder contains this run, finished.

    Raises:
        UserError: the folder contains another run, or its record cannot be written.
    """
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
    """The result of `work` in the main process, or its `UserError`, in every process."""
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


def on_every_machine(checkpoint: Path | None) -> Path | None:
    """The checkpoint that the main process found, once every process has seen it.

    Raises:
        UserError: one does not see it, and would begin anew beside the others.
    """
    seen = gather_object([checkpoint is None or (checkpoint / STATE).is_file()])
    if not all(seen):
        raise UserError(
            f"{checkpoint}: is not there on every machine; put the run's folder on a disk that all of them share"
        )
    return checkpoint


def check_sharing(checkpoint: Path, trainer: Trainer) -> None:
    """Check that a run shares its optimizer's state among processes as when the checkpoint was saved.

    Raises:
        UserError: it does not. transformers would go on without the state of the optimizer and of the schedule where it
            finds none of its kind, and DeepSpeed would end after loading the models.
    """
    if parts := sorted(checkpoint.glob("pytorch_model_fsdp_*/")):
        whole = checkpoint.with_name(f"{checkpoint.name}-whole")
        raise UserError(
            f"{checkpoint}: has sharded weights (SHARDED_STATE_DICT), as versions before 0.4 saved them, and a run "
            f"resumes only from whole weights; join them with `accelerate merge-weights {parts[0]} {whole}`, copy the "
            f"base model's config.json and tokenizer files there, and begin a new run with --model_name_or_path {whole}"
        )
    began = next(
        (name for name, files in OF_SHARING.items() if any(any(checkpoint.glob(file)) for file in files)), COPIES
    )
    now = "DeepSpeed" if trainer.is_deepspeed_enabled else "FSDP" if trainer.is_fsdp_enabled else COPIES
    anew = f"begin a new run from its weights: --model_name_or_path {checkpoint} with another --output_dir"
    if began != now:
        raise UserError(
            f"{checkpoint}: was saved under {began}, and its optimizer's state cannot be read under {now}; start it "
            f"with the launch file that it began with, or {anew}"
        )
    saved_by, processes = zero_processes(checkpoint), trainer.args.world_size
    if saved_by not in (None, processes):
        raise UserError(
            f"{checkpoint}: was saved by {saved_by} processes, and ZeRO resumes only with as many, not with "
            f"{processes}; start {saved_by} processes, or {anew}"
        )


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint in a run folder; one that a killed run was still writing is skipped.

    Raises:
        UserError: there are checkpoints, but all of them have only weights (`keep_weights`).
    """
    complete = checkpoints_of(folder)
    whole = [path for path in complete.values() if not (path / WEIGHTS_ONLY).exists()]
    if complete and not whole:
        raise UserError(
            f"{folder}: its checkpoints have only weights (keep_weights), and the one to resume from is gone; remove "
            "the folder to begin anew, or give a checkpoint as model_name_or_path of a new run"
        )
    return whole[-1] if whole else None
