"""The saved weights of a run, read back before it counts as finished."""

from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel
from transformers import Trainer

from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import checkpoints_of
from notewriter.training.model import weights
from notewriter.training.run.resumption import on_main_process

REMEDY = (
    "the run is not finished; correct the cause (such as a full disk, or the launch file) and run the command again"
)


def last_finite(run: Path) -> Path | None:
    """The newest checkpoint of a run whose saved weights are all finite; None if there is none."""
    newest_first = reversed(checkpoints_of(run).values())
    return next(
        (each for each in newest_first if any(each.glob("*model*.safetensors")) and not weights.broken_tensor(each)),
        None,
    )


def check_finite(run: Path) -> None:
    """Check that the weights that a run ends with are finite; a model with others is never finished.

    Raises:
        UserError: one of them is not finite; names the last checkpoint whose weights are.
    """
    if name := weights.broken_tensor(run):
        good = last_finite(run)
        raise UserError(
            f"{run}: training has diverged in its last step: {name} has values that are not finite; give a lower "
            f"--learning_rate, with another --output_dir{f'; the weights of {good} are finite' if good else ''}"
        )


def require_weights(folder: Path) -> None:
    """Check that a model or an adapter was saved at all.

    Raises:
        UserError: there is no file of weights, for example because a launch file has each process save its own part.
    """
    if not any(folder.glob("*model*.safetensors")):
        raise UserError(f"{folder}: has no weights after saving; {REMEDY}")


def check_saved(trainer: Trainer, folder: Path) -> None:
    """Compare the saved weights with those in memory: the names and shapes of all, and the values of one.

    Every process has to call this, since parameters may be divided among them. For a whole model transformers itself
    reports whether the files have the weights of its architecture; of an adapter, its parameters in memory.

    Raises:
        UserError: a weight is missing, has another shape or other values; the same in every process.
    """
    model = cast(torch.nn.Module, trainer.accelerator.unwrap_model(trainer.model))
    trained = {_saved_name(name): each for name, each in model.named_parameters() if each.requires_grad}
    chosen = on_main_process(lambda: _choose(trainer, folder, model, trained))
    value = _whole(trained[chosen], trainer)
    on_main_process(lambda: _compare(folder, chosen, value))


def _choose(trainer: Trainer, folder: Path, model: torch.nn.Module, trained: dict[str, torch.nn.Parameter]) -> str:
    """The name of the smallest trained weight in the files, once the names and shapes of all were checked."""
    saved = {name: list(file.get_slice(name).get_shape()) for name, file in weights.saved_tensors(folder)}
    if isinstance(model, PeftModel):
        for name, parameter in trained.items():
            if ".lora_" in name and saved.get(name) != _shape(parameter):
                raise UserError(
                    f"{folder}: {name} has the shape {saved.get(name, 'of nothing')} in the files and "
                    f"{_shape(parameter)} in memory; {REMEDY}"
                )
    else:
        weights.check_whole(str(folder), "main", trainer.args)
    found = [name for name in trained if name in saved]
    if not found:
        raise UserError(
            f"{folder}: none of the trained weights, such as {next(iter(trained))}, is in the files; {REMEDY}"
        )
    return min(found, key=lambda name: (trained[name].numel() or torch.Size(_shape(trained[name])).numel(), name))


def _saved_name(name: str) -> str:
    """The name of a parameter in the files, without the parts that PEFT and FSDP put into it."""
    for inner in (".default", ".modules_to_save", "_fsdp_wrapped_module.", "_orig_mod."):
        name = name.replace(inner, "")
    # PEFT saves DoRA's magnitudes under the name of their module.
    return name.replace(".lora_magnitude_vector.weight", ".lora_magnitude_vector")


def _shape(parameter: Any) -> list[int]:
    # ZeRO-3 keeps an empty tensor in the place of a parameter, and its shape beside it.
    return list(getattr(parameter, "ds_shape", parameter.shape))


def _whole(parameter: Any, trainer: Trainer) -> torch.Tensor:
    """A parameter's value in memory, gathered from all processes."""
    if hasattr(parameter, "ds_shape"):
        import deepspeed  # type: ignore[import-untyped]

        with deepspeed.zero.GatheredParameters([parameter]):
            return cast(torch.Tensor, parameter.detach().cpu().clone())
    if hasattr(parameter, "full_tensor"):
        return cast(torch.Tensor, parameter.detach().full_tensor().cpu())
    return cast(torch.Tensor, parameter.detach().cpu())


def _compare(folder: Path, name: str, value: torch.Tensor) -> None:
    for saved in (file.get_tensor(name) for each, file in weights.saved_tensors(folder) if each == name):
        # The files may have fewer digits (`weights.cast_weights`).
        if not torch.equal(saved, value.to(saved.dtype)):
            raise UserError(f"{folder}: {name} has other values in the files than in memory; {REMEDY}")
