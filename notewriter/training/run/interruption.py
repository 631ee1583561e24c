"""The end of a run at a signal: a checkpoint after the step at hand, from which the run goes on later.

A cluster sends a signal before a job's time limit or when it preempts the job. transformers' `enable_jit_checkpoint`
handles SIGTERM alone and lets each process decide by a timer of its own: processes may save different steps and wait
for each other forever. It then goes on as if training had finished.
"""

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from notewriter.models.checkpoint import checkpoints_of
from notewriter.training.run.resumption import on_main_process
from notewriter.training.run.signals import SIGNALS, STOPPED

logger = logging.getLogger(__name__)


class StopOnSignal(TrainerCallback):
    """Save a checkpoint and stop once any process has received a signal; all processes stop after the same step.

    A signal sets a flag. Processes exchange their flags after each step and each batch of an
    evaluation, so one signal to one process suffices, and the signals may arrive during different steps.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.stopping = False
        self._signalled = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals in the block, and until the process ends if one of them stopped the run."""
        before = {number: signal.signal(number, self._remember) for number in SIGNALS}
        try:
            yield
        finally:
            # A launcher sends SIGTERM to all processes once one has ended.
            if not self.stopping:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True

    def _agreed(self) -> bool:
        """Whether any process was signalled; the same answer in all of them."""
        if self._signalled:
            self.trainer.accelerator.set_trigger()
        return bool(self.trainer.accelerator.check_trigger())

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save and stop, without the evaluation that would come first."""
        if self._agreed():
            self.stopping = True
            # Logged, because the steps since the last entry would be missing in the curves and in the count of tokens.
            control.should_log = control.should_save = control.should_training_stop = True
            control.should_evaluate = False

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A stopped run leaves the loop as if its epoch had ended."""
        if self.stopping:
            control.should_save = control.should_evaluate = False

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Save and end during an evaluation, which may take longer than the time that is left.

        Raises:
            SystemExit: a process was signalled.
        """
        if self._agreed():
            self.stopping = True
            # Evaluation comes before the checkpoint of the same step, except after the last one. Saving that again
            # would leave a broken checkpoint if it were cut short.
            run = Path(args.output_dir or "")
            if not on_main_process(lambda: state.global_step in checkpoints_of(run)):
                self.trainer._save_checkpoint(self.trainer.model, trial=None)  # type: ignore[arg-type]
                # As after any other checkpoint: `keeping.Complete` adds its part.
                self.trainer.callback_handler.on_save(args, state, control)
            self.end()

    def end(self) -> None:
        """End the process once all of them have written their part of the checkpoint.

        Raises:
            SystemExit: always, with the code `STOPPED`.
        """
        self.trainer.accelerator.wait_for_everyone()
        logger.info(
            "%s: stopped by a signal, with a checkpoint after step %d; run the same command again to continue",
            self.trainer.args.output_dir,
            self.trainer.state.global_step,
        )
        self.trainer.end()
        sys.exit(STOPPED)
