"""The optimizer steps of a run, from its last checkpoint to the saved model, and the record of it."""

import dataclasses
import logging
import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from transformers import Trainer, TrainerState
from trl import DPOConfig, KTOConfig, ModelConfig, SFTConfig

from notewriter.artifacts.run_folder import RunFolder
from notewriter.artifacts.trackers import run_id
from notewriter.artifacts.training_record import TrainingRecord, write_training_record
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_of
from notewriter.models.checkpoint import STATE, Checkpoint
from notewriter.models.identity import of_base
from notewriter.training.model import exchange, weights
from notewriter.training.run.interruption import StopOnSignal
from notewriter.training.run.keeping import REFERENCE, Complete, KeepWeights
from notewriter.training.run.losses import is_read
from notewriter.training.run.resumption import check_sharing, last_checkpoint, on_every_machine, on_main_process
from notewriter.training.run.saved import check_finite, check_saved, require_weights
from notewriter.training.run.watching import show_lines

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes")


def train(trainer: Trainer, run: RunFolder, base: weights.Stored, stop: StopOnSignal) -> dict[str, float]:
    """The last metrics of a training, which begins at the last checkpoint if there is one.

    `base` is how the base model is stored, as which a fully trained model is too.

    Raises:
        UserError: training diverged (`steps`), or the run cannot go on from its checkpoint.
        SystemExit: a signal stopped the run, which has saved a checkpoint (`interruption`).
    """
    trainer.add_callback(stop)
    show_lines(trainer)
    reference = _following(trainer)
    trainer.add_callback(Complete(base, reference))
    if "wandb" in (trainer.args.report_to or []) and trainer.is_world_process_zero():
        # transformers begins a run of W&B at every start, unless these name one.
        os.environ.setdefault("WANDB_RUN_ID", run_id(run.path))
        os.environ.setdefault("WANDB_RESUME", "allow")
    if run.config.get("keep_weights"):
        trainer.add_callback(KeepWeights(run.path, None if run.config["use_peft"] else base))
    checkpoint = on_every_machine(on_main_process(lambda: last_checkpoint(run.path)))
    if checkpoint:
        check_sharing(checkpoint, trainer)
        logger.info("%s: resuming from this checkpoint", checkpoint)
        _restore_token_count(trainer, checkpoint)
        if reference is not None:
            _restore(reference, checkpoint / REFERENCE)
    start = str(checkpoint) if checkpoint else None
    metrics: dict[str, float] = trainer.train(resume_from_checkpoint=start).metrics
    if stop.stopping:
        stop.end()
    if trainer.args.eval_strategy != "no":
        trainer.evaluate()
    last: dict[str, float] = {}
    for entry in trainer.state.log_history:
        last |= entry
    last |= metrics
    if checkpoint:
        # The mean over the steps since then alone.
        last.pop("train_loss", None)
    return last


def save(trainer: Trainer, run: RunFolder, base: weights.Stored) -> None:
    """Save the whole model, and read it back.

    Raises:
        UserError: it is not what was trained, has weights that are not finite, or cannot be written.
    """
    trainer.save_model(str(run.path))
    on_main_process(lambda: require_weights(run.path))
    if trainer.is_world_process_zero():
        # A pickle of every option, including tokens, and the libraries' cards of a "fine-tuned version of None";
        # nothing reads either, and `notewriter publish` writes the model's card.
        for name in ("training_args.bin", "README.md"):
            (run.path / name).unlink(missing_ok=True)
        if not run.config["use_peft"]:
            weights.cast_weights(run.path, base)
        exchange.settle(run.path, base)
    check_saved(trainer, run.path)
    on_main_process(lambda: check_finite(run.path))


def _following(trainer: Trainer) -> torch.nn.Module | None:
    """The reference that follows the model, if there is one.

    Raises:
        UserError: it is sharded, and could not be saved whole.
    """
    if not getattr(trainer.args, "sync_ref_model", False):
        return None
    plugin = trainer.accelerator.state.deepspeed_plugin
    if trainer.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3):
        raise UserError(
            "sync_ref_model: under FSDP and ZeRO-3 its reference is sharded, and a resumed run would lose it; give "
            "--accelerate ddp or zero2, or leave it out"
        )
    return cast(torch.nn.Module, trainer.accelerator.unwrap_model(trainer.ref_model))  # type: ignore[attr-defined]


def _restore(reference: torch.nn.Module, file: Path) -> None:
    if not file.is_file():
        raise UserError(
            f"{file}: is not there, and the run would go on with another reference (sync_ref_model); remove this "
            "checkpoint to resume from an earlier one, or give another --output_dir"
        )
    reference.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))


def _restore_token_count(trainer: Trainer, checkpoint: Path) -> None:
    """Count tokens on from a checkpoint; TRL begins at 0 in every process."""
    history = TrainerState.load_from_json(str(checkpoint / STATE)).log_history
    counts = [entry["num_tokens"] for entry in history if "num_tokens" in entry]
    trainer._total_train_tokens = int(counts[-1]) if counts else 0  # type: ignore[attr-defined]


def record(
    trainer: Trainer,
    run: RunFolder,
    training: DPOConfig | KTOConfig | SFTConfig,
    model: ModelConfig,
    base: str,
    **facts: Any,
) -> None:
    """Write `training.json`, which marks the run as finished; `facts` are its further keys.

    Raises:
        UserError: it cannot be written.
    """
    if not trainer.is_world_process_zero():
        return
    facts |= {f"{name}_sha256": digest for name, digest in run.inputs.items()}
    variables = run.config["chat_template_kwargs"]
    whole = Checkpoint(base, model.model_revision)
    written = TrainingRecord(
        base_model=base,
        base_model_fingerprint=run.fingerprints.get(of_base(whole.path)) or whole.fingerprint(),
        parameters="lora" if model.use_peft else "full",
        hyperparameters=hyperparameters(training, model) | ({"chat_template_kwargs": variables} if variables else {}),
        steps=trainer.state.global_step,
        recomputed_layers=getattr(trainer, "recomputed", None),
        versions={name: version(name) for name in PACKAGES if find_spec(name)},
        **facts,
    )
    write_training_record(run.path, written)
    logger.info("%s: trained in %d steps; the model is here", run.path, trainer.state.global_step)


def hyperparameters(training: DPOConfig | KTOConfig | SFTConfig, model: ModelConfig) -> dict[str, Any]:
    """The hyper-parameters that a paper's table lists, the batch over all processes, and those of an adapter."""
    listed = {name for name in names_of(training, listed=True) if is_read(name, training)}
    values = {name: value for name, value in training.to_dict().items() if name in listed}  # type: ignore[no-untyped-call]
    values["batch_size"] = (
        training.per_device_train_batch_size * training.gradient_accumulation_steps * training.world_size
    )
    values["processes"] = training.world_size
    of_model = dataclasses.asdict(model)
    if model.use_peft:
        values |= {key: value for key, value in of_model.items() if key.startswith("lora_")}
        values |= {key: True for key in ("use_rslora", "use_dora") if of_model[key]}
    if model.load_in_4bit:
        values |= {key: of_model[key] for key in ("load_in_4bit", "bnb_4bit_quant_type", "use_bnb_nested_quant")}
    if model.load_in_8bit:
        values["load_in_8bit"] = True
    return values
