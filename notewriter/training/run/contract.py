"""TRL's and transformers' undocumented parts that training builds on, checked by signature before a run.

Neither promises anything about them, and either may change them in any release, so pyproject.toml admits the one
release of each whose code was read and run.
"""

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, cast

import torch
from transformers import PreTrainedConfig, PreTrainedModel, Trainer
from trl import DPOTrainer
from trl.trainer import utils

from notewriter.ground.errors import UserError

RUN_WITH = "trl==1.16.0"


def _fused_forward() -> Any:
    """The forward of a model with TRL's fused head."""
    model = torch.nn.Identity()
    # Any module with a configuration will do.
    setattr(model, "config", PreTrainedConfig())  # noqa: B010
    utils.add_fused_lm_head(cast(PreTrainedModel, model))
    return model.forward


CONTRACT: dict[str, tuple[Callable[[], Any], str]] = {
    "DPOTrainer._prepare_dataset": (
        lambda: DPOTrainer._prepare_dataset,
        "self, dataset, processing_class, args, dataset_name",
    ),
    "DPOTrainer._precompute_ref_logps": (lambda: DPOTrainer._precompute_ref_logps, "self, dataset, name, batch_size"),
    "DPOTrainer.compute_ref_log_probs": (lambda: DPOTrainer.compute_ref_log_probs, "self, model, inputs"),
    "DPOTrainer._set_signature_columns_if_needed": (lambda: DPOTrainer._set_signature_columns_if_needed, "self"),
    "Trainer._set_signature_columns_if_needed": (lambda: Trainer._set_signature_columns_if_needed, "self"),
    "Trainer._run_epoch": (
        lambda: Trainer._run_epoch,
        "self, model, epoch, train_dataloader, steps_in_epoch, num_update_steps_per_epoch, trial, "
        "ignore_keys_for_eval, start_time, resume_from_checkpoint, epochs_trained, steps_trained_in_current_epoch",
    ),
    "the forward with a fused head": (
        _fused_forward,
        "args, fused_lm_head, labels, shift_labels, num_items_in_batch, kwargs",
    ),
    "FusedCausalLMOutput": (
        lambda: utils.FusedCausalLMOutput,
        "loss, log_probs, entropy, log_sum_sq_probs, mean_logits, is_top1, label_mask, aux_loss",
    ),
}
"""What `notewriter.training.sharing.reference` and `trainers` override and `sharing.prefix_sharing` calls.

For each: how to find it, and its parameters.
"""


def check_trl() -> None:
    """Refuse a TRL whose undocumented parts differ from those that this code was written for.

    Raises:
        UserError: one of them is missing or takes other parameters; names it.
    """
    for name, (find, expected) in CONTRACT.items():
        try:
            # Not the signature of a wrapped function: the wrapper's own is what can be called.
            actual = f"({', '.join(inspect.signature(find(), follow_wrapped=False).parameters)})"
        except AttributeError:
            actual = "missing"
        if actual != f"({expected})":
            raise UserError(f"trl {version('trl')}: {name} is {actual}, not ({expected}); install {RUN_WITH}")
