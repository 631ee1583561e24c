"""Training on from a LoRA adapter, as rounds of on-policy training do: the same adapter further, or a new one on top.

In both, the reference of DPO is the model that the run starts from: the base with the adapter.
"""

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from accelerate import DistributedType
from transformers import PreTrainedModel, TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from trl import DPOConfig, ModelConfig

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.models import checkpoints
from notewriter.training.run import merging

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
    if not checkpoints.is_adapter(name):
        if how:
            raise UserError(f"from_adapter: {name} is not a LoRA adapter; leave from_adapter out")
        return False
    if how is None:
        # `check_model` names the remedy.
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
    checkpoints.check_model(checkpoints.adapter_base(name)[0])
    if how == CONTINUE:
        _check_lora(name, model)
    return True


def _check_lora(adapter: str, model: ModelConfig) -> None:
    """Refuse LoRA options that an adapter which is trained further does not have."""
    settings, usual = checkpoints.adapter_settings(adapter), ModelConfig()
    for option, key in LORA.items():
        wanted = getattr(model, option)
        if wanted not in (getattr(usual, option), settings.get(key)):
            raise UserError(
                f"{option}: is {settings.get(key)} in {adapter}, which is trained further, not {wanted}; leave it out, "
                "or give --from_adapter stack"
            )


def lora_options(adapter: Path) -> dict[str, Any]:
    """The LoRA options, by their names in ModelConfig, that an adapter was saved with."""
    settings = checkpoints.adapter_settings(adapter)
    return {option: settings.get(key) for option, key in LORA.items()}


def merged_base(adapter: str, output: str, training: TrainingArguments) -> str:
    """The base with the adapter merged into it, in a folder of the run; merges unless an earlier start has.

    Raises:
        UserError: as `merging.merge`.
    """
    folder, adapter_now = Path(output) / MERGED, checkpoints.fingerprint(adapter)
    merged_from = folder / MERGED_FROM
    if merged_from.is_file() and merged_from.read_text(encoding="utf-8") == adapter_now:
        return str(folder)
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _whole_weights(training):
        merging.merge(Path(adapter), folder)
    jsonl.write_text(merged_from, [adapter_now])
    return str(folder)


@contextlib.contextmanager
def _whole_weights(training: TrainingArguments) -> Iterator[None]:
    """Load models whole, as one process alone has to, where ZeRO-3 would spread them over all processes."""
    unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if training.deepspeed_plugin:
            training.deepspeed_plugin.set_deepspeed_weakref()


def load_to_continue(adapter: str, loading: dict[str, Any], training: TrainingArguments) -> PreTrainedModel:
    """The base with the adapter, which is trained further; `loading` are the base's loading options.

    Raises:
        UserError: the model cannot be loaded, or the base has changed since the adapter was trained.
    """
    base, revision = checkpoints.adapter_base(adapter)
    merging.check_base(Path(adapter), base, revision)
    if training.distributed_state.distributed_type in (DistributedType.MULTI_GPU, DistributedType.DEEPSPEED):
        # Each process has its own device or part, as where TRL loads the model; by default it would take all devices.
        loading = loading | {"device_map": None}
    model = merging.load_whole(base, **loading | {"revision": revision})
    # TRL takes either kind.
    return cast(PreTrainedModel, merging.with_adapter(model, Path(adapter), trainable=True))
