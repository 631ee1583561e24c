"""How often a step waits for its device, and how many operations it starts, beside TRL's own."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from datasets import Dataset
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer, ModelConfig
from trl.trainer import utils

from notewriter.training.options import DPOArguments, DPOConfiguration
from notewriter.training.run import trainers
from notewriter.training.run.throughput import PENDING
from notewriter.training.sharing import prefix_sharing

READING = {"item", "tolist", "numpy", "cpu", "nonzero", "masked_select", "is_nonzero", "equal", "allclose"}
READING |= {f"__{name}__" for name in ("bool", "int", "float", "index", "contains")}


class OnDevice(torch.Tensor):
    """A tensor that stands for one on a GPU, as all that is computed from it: to read its values is to wait.

    A mask as an index is read for its number of ones.
    """

    waits: ClassVar[Counter[str]] = Counter()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__
        indices = args[1] if name in ("__getitem__", "__setitem__") else ()
        indices = indices if isinstance(indices, tuple) else (indices,)
        by_mask = any(isinstance(each, torch.Tensor) and each.dtype == torch.bool for each in indices)
        if name in READING or by_mask:
            cls.waits[place()] += 1
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result.as_subclass(torch.Tensor) if name == "cpu" else result


def place() -> str:
    """The file of the caller that is neither PyTorch's nor this test's."""
    frame: Any = sys._getframe(2)
    while "/torch/" in frame.f_code.co_filename or frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return "/".join(Path(frame.f_code.co_filename).parts[-4:])


class Operations(TorchDispatchMode):
    """Counts the operations that a device would be given; a view gives it nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not (function.is_view or "empty" in str(function))
        return function(*args, **(kwargs or {}))


class TokenTrainer(DPOTrainer):
    """TRL's trainer, given token ids instead of text."""

    def _prepare_dataset(self, dataset: Any, *_: object) -> Any:
        return dataset


ROWS = [{"prompt_ids": [6, 7, 8], "chosen_ids": [9, 10], "rejected_ids": [11, 12, 13], "length": 8}]


@pytest.fixture
def trainer_of(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A trainer at its first step, which recomputes nothing unless told; TRL's head is as on a GPU."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    rows = Dataset.from_list(ROWS)

    def build(ours: bool, **changes: Any) -> Any:
        monkeypatch.setattr(utils, "_use_triton", lambda _: True)
        options = {"use_cpu": True, "bf16": False, "report_to": "none", "max_length": None} | changes
        options |= {"per_device_train_batch_size": len(ROWS)}
        if ours:
            arguments = DPOArguments(pairs="pairs", prefix_sharing=True, reference_cache=str(tmp_path))
            configuration = DPOConfiguration(str(tmp_path), **options)
            base = ModelConfig(str(tiny_model), dtype="float32")
            trainer = trainers.build(str(tiny_model), tokenizer, {"train": rows}, arguments, configuration, base)
        else:
            configuration = DPOConfig(str(tmp_path), **options)
            trainer = TokenTrainer(str(tiny_model), args=configuration, train_dataset=rows, processing_class=tokenizer)
        trainer.current_gradient_accumulation_steps = 1
        if configuration.gradient_checkpointing:
            trainer.model.gradient_checkpointing_enable()
        return trainer

    return build


def step(trainer: Any) -> None:
    """A micro-batch that is on the device."""
    batch = {name: values.as_subclass(OnDevice) for name, values in trainer.data_collator(ROWS).items()}
    OnDevice.waits.clear()
    trainer.training_step(trainer.model, batch)


def test_a_micro_batch_waits_once_for_its_device_beside_the_figures_that_trl_logs(
    trainer_of: Callable[..., Any],
) -> None:
    step(trainer_of(False))
    theirs = Counter(OnDevice.waits)
    step(trainer_of(True, gradient_checkpointing=False))
    ours = Counter(OnDevice.waits)

    logged = "site-packages/trl/trainer/dpo_trainer.py"
    assert ours.pop(logged) == theirs.pop(logged)
    assert ours == {"notewriter/training/sharing/prefix_sharing.py": 1}
    # Its masks are made, and what is trained is found, for the policy and for the reference.
    assert theirs.total() > 4


def test_the_meter_waits_once_in_many_batches(trainer_of: Callable[..., Any]) -> None:
    trainer = trainer_of(True, gradient_checkpointing=False)
    batch = {name: values.as_subclass(OnDevice) for name, values in trainer.data_collator(ROWS).items()}
    OnDevice.waits.clear()
    for _ in range(PENDING - 1):
        trainer.meter.count(batch)
    assert not OnDevice.waits
    trainer.meter.count(batch)
    assert OnDevice.waits
    assert trainer.meter.read(lambda counts: counts, 1)["padding"] == 0
    assert trainer.meter.pending == []


def test_one_short_pair_starts_no_more_operations_than_trl_starts_by_default(
    trainer_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out = prefix_sharing._lay_out

    def on_the_host(*arguments: Any) -> Any:
        with _disable_current_modes():
            return lay_out(*arguments)

    monkeypatch.setattr(prefix_sharing, "_lay_out", on_the_host)
    counts = []
    for ours, options in ((False, {}), (True, {"gradient_checkpointing": False})):
        trainer = trainer_of(ours, **options)
        with Operations() as operations:
            step(trainer)
        counts.append(operations.count)
    assert counts[1] <= counts[0]
