"""Checkpoints that are reduced to their weights, for evaluation; the newest stays whole, and a run resumes from it.

With Adam in float32 the weights are a third of a checkpoint, and a sixth once they are stored as the base model's.
"""

import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from notewriter.ground.errors import writing
from notewriter.models.checkpoint import WEIGHTS_ONLY, checkpoints_of
from notewriter.training.model import exchange, weights

logger = logging.getLogger(__name__)

REFERENCE = "reference.pt"
"""The weights of a reference that follows the model (`sync_ref_model`), in a checkpoint."""

OF_TRANSFORMERS = ("optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state*.pth", "training_args.bin")
OF_OTHERS = ("optimizer_*", "pytorch_model_fsdp*", "global_step*", "latest", "zero_to_fp32.py")
RESUMPTION = (REFERENCE, *OF_TRANSFORMERS, *OF_OTHERS)
"""The files of a checkpoint beside the model: of transformers, FSDP and DeepSpeed."""


class Complete(TrainerCallback):
    """Completes every checkpoint for other programs (`exchange.settle`), and saves a reference that follows the model.

    `reference` is that of DPO with `sync_ref_model`, which a resumed run goes on with.
    """

    def __init__(self, base: weights.Stored, reference: torch.nn.Module | None) -> None:
        self.base = base
        self.reference = reference

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Change the checkpoint that was saved."""
        folder = Path(args.output_dir or "") / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            exchange.settle(folder, self.base)
            if self.reference is not None:
                torch.save(self.reference.state_dict(), folder / REFERENCE)


class KeepWeights(TrainerCallback):
    """Reduces every complete checkpoint but the newest to its weights, stored as the `base` of a full training is.

    This is done a step after the newest was saved, when all processes have written their part of it. The best one stays
    whole while `load_best_model_at_end` may need it: DeepSpeed and FSDP load it from their own files.
    """

    def __init__(self, run: Path, base: weights.Stored | None) -> None:
        self.run = run
        self.base = base
        self._saved = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Remember that there is a new checkpoint."""
        self._saved = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Reduce the checkpoints before the newest one."""
        if self._saved and state.is_world_process_zero:
            best = state.best_model_checkpoint if args.load_best_model_at_end else None
            keep_weights(self.run, self.base, best)
        self._saved = False

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Reduce them once more, after the last checkpoint."""
        self.on_step_end(args, state, control)


def keep_weights(run: Path, base: weights.Stored | None, best: str | None = None) -> None:
    """Reduce all complete checkpoints of a run but the newest, and the `best`, to their weights.

    Raises:
        UserError: a file cannot be written.
    """
    for folder in list(checkpoints_of(run).values())[:-1]:
        # In parts, as FSDP may save them, nothing can serve weights.
        if folder.name == Path(best or "").name or not any(folder.glob("*model*.safetensors")):
            continue
        mark = folder / WEIGHTS_ONLY
        is_whole = not mark.exists()
        with writing(folder):
            # First: nothing resumes from a checkpoint that has lost a part. A kill leaves the rest to the next time.
            mark.touch()
            for path in [path for pattern in RESUMPTION for path in folder.glob(pattern)]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if base and (folder / "config.json").is_file():
                weights.cast_weights(folder, base)
        if is_whole:
            logger.info("%s: reduced to its weights", folder)
