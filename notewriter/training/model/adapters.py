"""LoRA adapters: merged into their base, or the start of another run, as rounds of on-policy training do.

A run trains the same adapter further, or a new one on the merged model. In both, the reference of DPO is the model that
the run starts from: the base with the adapter.
"""

import logging
import shutil
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import DistributedType
from peft import PeftModel
from transformers import AutoTokenizer, PreTrainedModel, TrainingArguments
from trl import DPOConfig, ModelConfig

from notewriter.artifacts.training_record import TRAINING_RECORD, read_training_record
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.folders import new_folder
from notewriter.models.checkpoint import Checkpoint, load, loading
from notewriter.training.model import weights

logger = logging.getLogger(__name__)

CONTINUE, STACK = "continue", "stack"

LORA = {"lora_r": "r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"}
"""ModelConfig's options that an adapter keeps, and their names in adapter_config.json."""

MERGED = "base"
"""The folder in a run's where `stack` keeps the model that its new adapter belongs to."""

MERGED_FROM = "merged_from"
"""The file there with the fingerprint of the adapter; written last."""


def check_adapter(how: str | None, training: DPOConfig, model: ModelConfig) -> bool:
    """Whether the run starts from a LoRA adapter; `how` is the option `from_adapter`.

    Raises:
        UserError: `how` is unknown, or the other options do not fit it.
    """
    name = model.model_name_or_path or ""
    if not Checkpoint(name).is_adapter:
        if how:
            raise UserError(f"from_adapter: {name} is not a LoRA adapter; leave from_adapter out")
        return False
    if how is None:
        # `Checkpoint.check` names the remedy.
        return False
    if how not in (CONTINUE, STACK):
        raise UserError(f"from_adapter: {how!r} is not one of {CONTINUE}, {STACK}")
    if not model.use_peft:
        raise UserError(f"from_adapter: {how} trains an adapter; give --use_peft true")
    if how == CONTINUE and not training.precompute_ref_log_probs:
        # Otherwise the reference is a second adapter in the model, which checkpoints and resumption would mix up.
        raise UserError("from_adapter: continue needs the reference's log-probs; give --precompute_ref_log_probs true")
    if how == CONTINUE and (model.load_in_4bit or model.load_in_8bit):
        raise UserError("from_adapter: continue cannot quantize the base; leave load_in_4bit and load_in_8bit out")
    Checkpoint(name).base.check()
    if how == CONTINUE:
        _check_lora(name, model)
    return True


def _check_lora(adapter: str, model: ModelConfig) -> None:
    """Refuse LoRA options that an adapter which is trained further does not have."""
    settings, usual = Checkpoint(adapter).adapter_settings(), ModelConfig()
    for option, key in LORA.items():
        wanted = getattr(model, option)
        if wanted not in (getattr(usual, option), settings.get(key)):
            raise UserError(
                f"{option}: is {settings.get(key)} in {adapter}, which is trained further, not {wanted}; leave it out, "
                "or give --from_adapter stack"
            )


def lora_options(adapter: Path) -> dict[str, Any]:
    """The LoRA options, by their names in ModelConfig, that an adapter was saved with."""
    settings = Checkpoint(adapter).adapter_settings()
    return {option: settings.get(key) for option, key in LORA.items()}


def merged_base(adapter: str, output: str, training: TrainingArguments) -> str:
    """The base with the adapter merged into it, in a folder of the run; merges unless an earlier start has.

    Raises:
        UserError: as `merge`.
    """
    folder, adapter_now = Path(output) / MERGED, Checkpoint(adapter).fingerprint()
    merged_from = folder / MERGED_FROM
    if merged_from.is_file() and merged_from.read_text(encoding="utf-8") == adapter_now:
        return str(folder)
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with weights.unsharded(training):
        merge(Path(adapter), folder)
    jsonl.write_text(merged_from, [adapter_now])
    return str(folder)


def load_to_continue(adapter: str, loading: dict[str, Any], training: TrainingArguments) -> PreTrainedModel:
    """The base with the adapter, which is trained further; `loading` are the base's loading options.

    Raises:
        UserError: the model cannot be loaded, or the base has changed since the adapter was trained.
    """
    base = Checkpoint(adapter).base
    check_base(Path(adapter), base)
    if training.distributed_state.distributed_type in (DistributedType.MULTI_GPU, DistributedType.DEEPSPEED):
        # Each process has its own device or part, as where TRL loads the model; by default it would take all devices.
        loading = loading | {"device_map": None}
    model = weights.load_whole(base.path, **loading | {"revision": base.revision})
    # TRL takes either kind.
    return cast(PreTrainedModel, with_adapter(model, Path(adapter), trainable=True))


def merge(adapter: Path, output: Path) -> None:
    """Write an adapter's base with the adapter merged into it into `output`.

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
    base = Checkpoint(adapter).base
    base.check()
    check_base(adapter, base)
    dtype = weights.stored_dtype(base.path, base.revision)
    logger.info("%s: merging into %s", adapter, base.path)
    as_float32 = {"dtype": torch.float32, "device_map": None, "trust_remote_code": False}
    model = weights.load_whole(base.path, revision=base.revision, **as_float32)
    with loading(adapter, "LoRA adapter"):
        merged = with_adapter(model, adapter).merge_and_unload()
    tokenizer = load(AutoTokenizer, Checkpoint(adapter).tokenizer)

    with new_folder(output) as folder:
        (merged if dtype is None else merged.to(dtype)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if (adapter / TRAINING_RECORD).is_file():
            # For the model card: the merged model is what that run trained.
            shutil.copy(adapter / TRAINING_RECORD, folder)
    logger.info("%s: the merged model is here", output)


def with_adapter(model: PreTrainedModel, adapter: Path, *, trainable: bool = False) -> PeftModel:
    """A model with an adapter.

    Raises:
        UserError: the adapter cannot be loaded, or belongs to another architecture.
    """
    with loading(adapter, "LoRA adapter"), warnings.catch_warnings():
        # PEFT leaves layers that it has no weights for as they are.
        warnings.filterwarnings("error", "Found missing adapter keys")
        try:
            return PeftModel.from_pretrained(model, str(adapter), is_trainable=trainable)
        except UserWarning as warning:
            raise UserError(
                f"{adapter}: has no weights for some layers of {type(model).__name__}; name the base model that it was "
                "trained on in adapter_config.json"
            ) from warning


def check_base(adapter: Path, base: Checkpoint) -> None:
    """Compare the base model with the one that the adapter's training recorded.

    Raises:
        UserError: their weights, configurations or tokenizers differ, or the record is damaged.
    """
    record = read_training_record(adapter)
    if record is None or record.base_model_fingerprint is None:
        return
    now, recorded = base.fingerprint(), record.base_model_fingerprint
    # The hub's id and commit say nothing about a folder's hash; an id that is not downloaded yet has no commit.
    if now == base.path or ("@" in now) != ("@" in recorded):
        return
    if now != recorded:
        raise UserError(
            f"{adapter}: was trained on another base model than {base.path} is now (base_model_fingerprint in "
            f"{TRAINING_RECORD} differs); restore that model, or name it in adapter_config.json with "
            "base_model_name_or_path and revision"
        )
