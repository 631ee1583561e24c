"""Training on from a LoRA adapter, as rounds of on-policy training do: the same adapter further, or a new one on top.

In both, the reference of DPO is the model that the run starts from: the base with the adapter.
"""

import logging
from pathlib import Path
from typing import Any, cast

from peft import PeftModel
from transformers import PreTrainedModel
from trl import DPOConfig, ModelConfig
from trl.trainer.utils import create_model_from_path

from notewriter.errors import UserError
from notewriter.models import checkpoints
from training import merging

logger = logging.getLogger(__name__)

CONTINUE, STACK = "continue", "stack"

MERGED = "base"
"""The folder in a run's where `stack` keeps the model that its new adapter belongs to."""


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
    checkpoints.check_model(checkpoints.adapter_base(name)[0])
    return True


def merged_base(adapter: str, output: str) -> str:
    """The base with the adapter merged into it, in a folder of the run; merges unless an earlier start has."""
    folder = Path(output) / MERGED
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        merging.merge(Path(adapter), folder)
    return str(folder)


def load_to_continue(adapter: str, loading: dict[str, Any]) -> PreTrainedModel:
    """The base with the adapter, which is trained further; `loading` are the base's loading options.

    Raises:
        UserError: the model cannot be loaded, or the base has changed since the adapter was trained.
    """
    base, revision = checkpoints.adapter_base(adapter)
    merging.check_base(Path(adapter), base, revision)
    with checkpoints.loading(adapter):
        model = create_model_from_path(base, **loading | {"revision": revision})
        # TRL takes either kind.
        return cast(PreTrainedModel, PeftModel.from_pretrained(model, adapter, is_trainable=True))
