"""Merge a LoRA adapter into its base model: a whole model folder, to serve, train further or publish."""

import logging
import shutil
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel
from transformers import AutoTokenizer, PreTrainedModel
from trl.trainer.utils import create_model_from_path

from notewriter.artifacts.training_record import TRAINING_RECORD, read_training_record
from notewriter.ground.errors import UserError
from notewriter.ground.folders import new_folder
from notewriter.models import checkpoints
from notewriter.training.run.weights import stored_dtype

logger = logging.getLogger(__name__)


def merge(adapter: Path, output: Path) -> None:
    """Write the merged model into `output`.

    Raises:
        UserError: `adapter` is not an adapter, its files or those of its base are damaged, the base is missing or has
            changed since, or `output` is not empty.
    """
    if not (adapter / "adapter_config.json").is_file():
        what = "a whole model, which needs no merging" if (adapter / "config.json").is_file() else "no LoRA adapter"
        raise UserError(f"{adapter}: contains {what}; give the folder that a training run with use_peft saved")
    if not any(adapter.glob("adapter_model.*")):
        raise UserError(f"{adapter}: has no adapter_model.safetensors; wait until its training has ended")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: is not empty; remove it or give another --output_dir")
    name, revision = checkpoints.adapter_base(adapter)
    base = checkpoints.check_model(name)
    check_base(adapter, base, revision)
    dtype = stored_dtype(base, revision)
    logger.info("%s: merging into %s", adapter, base)
    model = load_whole(base, revision=revision, dtype=torch.float32, device_map=None, trust_remote_code=False)
    with checkpoints.loading(adapter, "LoRA adapter"):
        merged = with_adapter(model, adapter).merge_and_unload()
    has_tokenizer = any((adapter / file).is_file() for file in checkpoints.TOKENIZER)
    tokenizer = checkpoints.load(AutoTokenizer, str(adapter) if has_tokenizer else base)

    with new_folder(output) as folder:
        (merged if dtype is None else merged.to(dtype)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if (adapter / TRAINING_RECORD).is_file():
            # For the model card: the merged model is what that run trained.
            shutil.copy(adapter / TRAINING_RECORD, folder)
    logger.info("%s: the merged model is here", output)


def load_whole(name: str, **options: Any) -> PreTrainedModel:
    """A model whose files have all of its weights; transformers draws missing ones at random.

    Raises:
        UserError: the model cannot be loaded, or lacks weights.
    """
    with checkpoints.loading(name):
        # As for training: AutoModelForCausalLM would take only the text model of some architectures.
        loaded: Any = create_model_from_path(name, **options, output_loading_info=True)
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise UserError(f"{name}: its files lack {len(missing)} weights, {missing[0]} first; copy or save it again")
    return cast(PreTrainedModel, model)


def with_adapter(model: PreTrainedModel, adapter: Path, *, trainable: bool = False) -> PeftModel:
    """A model with an adapter.

    Raises:
        UserError: the adapter cannot be loaded, or belongs to another architecture.
    """
    with checkpoints.loading(adapter, "LoRA adapter"), warnings.catch_warnings():
        # PEFT leaves layers that it has no weights for as they are.
        warnings.filterwarnings("error", "Found missing adapter keys")
        try:
            return PeftModel.from_pretrained(model, str(adapter), is_trainable=trainable)
        except UserWarning as warning:
            raise UserError(
                f"{adapter}: has no weights for some layers of {type(model).__name__}; name the base model that it was "
                "trained on in adapter_config.json"
            ) from warning


def check_base(adapter: Path, base: str, revision: str) -> None:
    """Compare the base model with the one that the adapter's training recorded.

    Raises:
        UserError: their weights, configurations or tokenizers differ, or the record is damaged.
    """
    record = read_training_record(adapter)
    if record is None or record.base_model_fingerprint is None:
        return
    found, recorded = checkpoints.fingerprint(base, revision), record.base_model_fingerprint
    # The hub's id and commit say nothing about a folder's hash; an id that is not downloaded yet has no commit.
    if found == base or ("@" in found) != ("@" in recorded):
        return
    if found != recorded:
        raise UserError(
            f"{adapter}: was trained on another base model than {base} is now (base_model_fingerprint in "
            f"{TRAINING_RECORD} differs); restore that model, or name it in adapter_config.json with "
            "base_model_name_or_path and revision"
        )
