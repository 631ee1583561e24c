"""The display of a training run: a line for each entry of its log, in place of transformers' dictionaries.

step 42/1000 | loss 0.6421 | margin 0.113 | accuracy 0.58 | lr 4.9e-07 | 3,120 tokens/s | MFU 41.2% | 61.2 GiB | ...
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerState

SHOWN: dict[str, Callable[[float], str]] = {
    "loss": "loss {:.4f}".format,
    "rewards/margins": "margin {:.3f}".format,
    "rewards/accuracies": "accuracy {:.2f}".format,
    "mean_token_accuracy": "token accuracy {:.3f}".format,
    "learning_rate": "lr {:.2e}".format,
    "tokens_per_second": "{:,.0f} tokens/s".format,
    "mfu": "MFU {:.1%}".format,
    "peak_memory_gib": "{:.1f} GiB".format,
}
"""The figures of an entry that are shown, in this order; the rest is in `trainer_state.json` and in the trackers."""


def line(entry: Mapping[str, float], step: int, steps: int, left: float | None = None) -> str:
    """An entry of training steps, or of an evaluation on dev; empty for another one.

    `left` are the seconds until the end, if they are known.
    """
    where, prefix = f"step {step:,}/{steps:,}", ""
    if "eval_loss" in entry:
        where, prefix = f"{where} | dev", "eval_"
    elif "loss" not in entry:
        return ""
    # Of pairs the accuracy is that of the preference.
    without = {"mean_token_accuracy"} if f"{prefix}rewards/accuracies" in entry else set()
    names = [name for name in SHOWN if prefix + name in entry and name not in without]
    parts = [SHOWN[name](entry[prefix + name]) for name in names]
    return " | ".join([where, *parts, *([f"{duration(left)} left"] if left is not None else [])])


def duration(seconds: float) -> str:
    """Seconds in words, such as `50 s`, `12 min` or `3 h 05 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


class Lines(TrainerCallback):
    """Writes a line for each entry, with the time that is left by the mean of the steps of this process so far."""

    def on_train_begin(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Start the clock, at the step from which a run resumes."""
        self._start, self._first = time.monotonic(), state.global_step

    def on_log(
        self, args: Any, state: TrainerState, *_: Any, logs: Mapping[str, float] | None = None, **__: Any
    ) -> None:
        """Write the line, above the bar if there is one."""
        if not (state.is_world_process_zero and logs):
            return
        left = None
        if "loss" in logs and (done := state.global_step - self._first):
            left = (time.monotonic() - self._start) / done * (state.max_steps - state.global_step)
        if text := line(logs, state.global_step, state.max_steps, left):
            tqdm.write(text, file=sys.stderr)


class _Bar(ProgressCallback):
    """transformers' bars without its dictionaries."""

    def on_log(self, *_: Any, **__: Any) -> None:
        """Nothing: `Lines` writes."""


def show_lines(trainer: Trainer) -> None:
    """Make a trainer write lines, and bars too on a terminal."""
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    if sys.stderr.isatty() and not trainer.args.disable_tqdm:
        trainer.add_callback(_Bar())
    trainer.add_callback(Lines())
