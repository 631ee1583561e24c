"""Where the time of a training step goes."""

import time
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent
from transformers import TrainerControl, TrainerState, TrainingArguments

from .machine import Machine
from .results import Record
from .setting import Setting
from .training_steps import WARM_UP, Stopwatch, train

PROFILED = 2
"""Steps that the profiler watches."""

KINDS = {
    "head": ("ChunkedLogProb",),
    "attention": ("attention", "attn", "flash"),
    "optimizer": ("Optimizer.", "_fused_adam", "_foreach"),
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    "copies by index": ("aten::index", "aten::cat", "aten::gather", "aten::scatter", "aten::split", "aten::masked"),
    "casts and copies": ("aten::copy_", "aten::clone", "aten::_to_copy", "Memcpy"),
}
"""What a profile is divided into, by what the operator or one around it is called; the first that fits counts."""


class ProfilingStopwatch(Stopwatch):
    """A stopwatch that has PyTorch's profiler watch the first `PROFILED` steps after `WARM_UP`."""

    profiler: torch.profiler.profile
    began: float

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Before the forward."""
        if len(self.ends) == WARM_UP:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if self.machine.device.type == "cuda":
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self.profiler = torch.profiler.profile(activities=activities)
            self.profiler.start()
            self.began = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """After the optimizer's step."""
        super().on_step_end(args, state, control)
        if len(self.ends) == WARM_UP + PROFILED:
            self.profiler.stop()
            control.should_training_stop = True


def profile(machine: Machine, **options: Any) -> Record:
    """Where the time of `PROFILED` steps goes: the device's seconds by `KINDS`, and those of the clock on the wall."""
    watch = ProfilingStopwatch(machine, most_steps=10, most_seconds=1e9)
    record = train(machine, watch, Setting(**options))
    seconds: dict[str, float] = dict.fromkeys([*KINDS, "other"], 0.0)
    names: dict[str, float] = {}
    launches = 0
    for event in watch.profiler.events():
        used = event.self_device_time_total if machine.device.type == "cuda" else event.self_cpu_time_total
        # The kernels themselves are listed again beside the operators that launched them.
        on_device = event.device_type.name == "CUDA"
        launches += on_device and not event.is_user_annotation
        if on_device or used <= 0:
            continue
        seconds[kind_of(event)] += used / 1e6
        names[event.name] = names.get(event.name, 0.0) + used / 1e6
    wall = watch.ends[-1] - watch.began
    largest = sorted(names, key=lambda name: -names[name])[:25]
    return record | {
        "seconds": seconds,
        "wall": wall,
        "busy": sum(seconds.values()) / wall,
        "launches": launches,
        "largest": {name: names[name] for name in largest},
    }


def kind_of(event: FunctionEvent) -> str:
    """Which of `KINDS` an operator belongs to, by its name and the names of those around it."""
    names = []
    around: FunctionEvent | None = event
    while around is not None:
        names.append(around.name)
        around = around.cpu_parent
    return next((kind for kind, words in KINDS.items() if any(w in name for w in words for name in names)), "other")
