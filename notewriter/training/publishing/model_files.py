"""The files of a model's repository: a checkpoint's own, its weights in the final type, its settings for everyone."""

import json
import shutil
from pathlib import Path
from typing import Any

from notewriter.artifacts.best_checkpoint import BestCheckpoint, read_best_checkpoint
from notewriter.artifacts.run_record import read_inputs
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import ADAPTER, SETTINGS, TOKENIZER, WEIGHTS, Checkpoint, checkpoints_of, is_hub_id

FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    *TOKENIZER,
    *SETTINGS,
    "LICENSE*",
    "NOTICE*",
)
"""The files of a model: everything else (optimizer states, checkpoints of a run, logs) stays, without being listed."""

STALE = (*WEIGHTS, "*.index.json")
"""Files of an earlier upload that are deleted unless they are sent again."""

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
"""Pickles run code on the machine that loads them; none is uploaded."""

Settings = dict[str, Any]


def published(checkpoint: Path, run: Path, scratch: Path) -> dict[str, Path | bytes]:
    """The files of a checkpoint by name, with weights in the type of the run's final model, and settings to publish."""
    folder = _in_final_type(checkpoint, run, scratch)
    contents: dict[str, Path | bytes] = {path.name: path for path in files(folder)}
    for name, rewrite in (
        (ADAPTER, lambda settings: _adapter_settings(folder, settings)),
        ("tokenizer_config.json", _tokenizer_settings),
        ("config.json", _model_settings),
    ):
        if name in contents:
            settings: Settings = jsonl.read_object(folder / name, Settings, "restore the file")
            if (rewritten := rewrite(settings)) != settings:
                contents[name] = json.dumps(rewritten, indent=2).encode("utf-8")
    return contents


def files(folder: Path) -> list[Path]:
    """The files of a checkpoint that belong to the model, by name."""
    paths = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in paths if path.suffix not in PICKLES)


def revisions(run: Path) -> list[Path]:
    """The complete checkpoints of a run with weights in safetensors, in the order of their steps."""
    return [path for path in checkpoints_of(run).values() if any(path.glob("*.safetensors"))]


def check_checkpoint(folder: Path) -> None:
    """Raise a `UserError` where `folder` is neither a whole model nor a LoRA adapter, with weights in safetensors."""
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; give the one that a training run saved its model in")
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
    best = read_best_checkpoint(Path(scores))
    folder = Path(run or "") / Path(best.checkpoint).name
    if not folder.is_dir():
        raise UserError(f"{folder}: scored best but is not there; give its run, or evaluate the checkpoints that are")
    if read_inputs(Path(scores) / folder.name).get("served") not in (None, Checkpoint(folder).fingerprint()):
        raise UserError(f"{folder}: is not the checkpoint that {scores} has scores of; give that one's run")
    return folder, best


def _in_final_type(checkpoint: Path, run: Path, scratch: Path) -> Path:
    """The checkpoint, or a copy of it whose weights have the type of the run's final model.

    A checkpoint of full-parameter training has float32 weights, to resume from (`weights.cast_weights`).
    """
    saved, final = _stored_type(checkpoint), _stored_type(run)
    if not (saved and final) or saved == final:
        return checkpoint
    copy = scratch / checkpoint.name
    # The best checkpoint is one of the revisions too.
    if not copy.exists():
        import torch  # takes seconds, which all other uploads do without

        from notewriter.training.model.weights import cast_weights

        dtype = getattr(torch, final, None)
        if not isinstance(dtype, torch.dtype):
            raise UserError(f"{run / 'config.json'}: dtype {final!r} is not one of PyTorch's; correct it")
        copy.mkdir()
        for path in files(checkpoint):
            shutil.copy(path, copy)
        cast_weights(copy, dtype)
    return copy


def _stored_type(folder: Path) -> str | None:
    """The type of the weights according to a model's configuration; None where it does not say."""
    file = folder / "config.json"
    dtype = jsonl.read_object(file, Settings, "restore the file").get("dtype") if file.is_file() else None
    return dtype if isinstance(dtype, str) else None


def _adapter_settings(folder: Path, settings: Settings) -> Settings:
    """Those of an adapter with its base model by its hub id, or else by its folder's name."""
    name = settings.get("base_model_name_or_path") or ""
    return settings | {"base_model_name_or_path": adapted_model(folder) or Path(name).name}


def adapted_model(folder: Path) -> str | None:
    """The hub id of the very model that an adapter belongs to; None where that is a folder of its own training."""
    name = read_json_of(folder / ADAPTER).get("base_model_name_or_path") or ""
    if is_hub_id(name):
        return str(name)
    hub_id: str | None = read_json_of(Path(name) / "origin.json").get("model")
    return hub_id


def read_json_of(path: Path) -> Settings:
    """The JSON object in a file; empty where there is no such file."""
    if not path.is_file():
        return {}
    record: Settings = jsonl.read_object(path, Settings, "restore the file or remove it")
    return record


def _tokenizer_settings(settings: Settings) -> Settings:
    """Those of a tokenizer under the names that transformers 4 knows (5 reads both), without how it was loaded here."""
    settings = {key: value for key, value in settings.items() if key not in {"is_local", "local_files_only"}}
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(settings.get("extra_special_tokens"), list):
        settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    return settings


def _model_settings(settings: Settings) -> Settings:
    """Those of a model with its rotary embedding also where transformers 4 looks, which else takes theta 10,000."""
    rope = settings.get("rope_parameters")
    if not isinstance(rope, dict) or "rope_theta" not in rope:
        return settings
    older: Settings = {"rope_theta": rope["rope_theta"]}
    if rope.get("rope_type", "default") != "default":
        older["rope_scaling"] = {key: value for key, value in rope.items() if key != "rope_theta"}
    return older | settings
