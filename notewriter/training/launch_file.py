"""The file that accelerate launches with: its keys that change what is trained or saved, and what is done about each.

accelerate hands its keys to the processes as environment variables, so files of `accelerate config`, options of
`accelerate launch` and our own profiles are one here. A value that a run cannot be right with is set, with a line in
the log, or refused before anything is loaded. docs/clusters.md has the table `KEYS`.
"""

import copy
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from transformers import TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
from trl import ModelConfig

from notewriter.ground.errors import UserError

logger = logging.getLogger(__name__)

PLACE = "the file that accelerate launches with"


@dataclass(frozen=True)
class Key:
    """A key of a launch file.

    Args:
        name: the key, with the section that it stands in.
        does: what is done about it, in Markdown.
        variable: accelerate's environment variable for it; empty where `does` is all.
        refused: for a value of the variable, the remedy if it cannot be trained with, or empty.
    """

    name: str
    does: str
    variable: str = ""
    refused: Callable[[str], str] = lambda value: ""


def _above_one(value: str) -> str:
    return "leave it out, or write 1" if value.isdecimal() and int(value) > 1 else ""


def _is_on(remedy: str) -> Callable[[str], str]:
    return lambda value: remedy if value.lower() in ("true", "1") else ""


def _format(value: str) -> str:
    return "" if value in ("no", "bf16", "fp16") else "write bf16, fp16 or no"


def _compiler(value: str) -> str:
    return "" if value.lower() == "no" else "leave it out; --torch_compile true compiles the model"


def _version(value: str) -> str:
    return "" if value == "2" else "write 2, as the profile fsdp2 does; the older version was never tried"


KEYS = (
    Key(
        "`mixed_precision`",
        "The number format of forward and backward (`no`, `bf16`, `fp16`), unless the training has `bf16` or `fp16`. "
        "Others, such as `fp8` with its `fp8_config`, are refused.",
        "ACCELERATE_MIXED_PRECISION",
        _format,
    ),
    Key(
        "`num_processes`, `num_machines`",
        "Read. With `total_batch_size` the batch stays what it is, and so do the gradients; a run under ZeRO resumes "
        "with the number that it began with.",
    ),
    Key(
        "`dynamo_config`",
        "Refused where it names a backend: `torch_compile` is the training's own option.",
        "ACCELERATE_DYNAMO_BACKEND",
        _compiler,
    ),
    *(
        Key(
            f"`parallelism_config_{size}`",
            "Refused above 1: a forward has the tokens of whole rows.",
            f"PARALLELISM_CONFIG_{size.upper()}",
            _above_one,
        )
        for size in ("tp_size", "cp_size", "sp_size")
    ),
    Key(
        "`megatron_lm_config`",
        "Refused.",
        "ACCELERATE_USE_MEGATRON_LM",
        _is_on("choose FSDP, DeepSpeed or several GPUs in `accelerate config`"),
    ),
    Key(
        "`fsdp_config`: `fsdp_version`",
        "2; version 1 is refused.",
        "FSDP_VERSION",
        _version,
    ),
    Key(
        "`fsdp_state_dict_type`",
        "Taken as `FULL_STATE_DICT`: every checkpoint and the trained model have whole weights. With "
        "`SHARDED_STATE_DICT`, accelerate's default, a run would end without a model.",
    ),
    Key(
        "`fsdp_cpu_ram_efficient_loading`",
        "Refused for all parameters of DPO and KTO, whose reference model it leaves uninitialised.",
    ),
    Key(
        "`fsdp_activation_checkpointing`",
        "Refused: the training's `gradient_checkpointing` does it, and both would recompute twice.",
        "FSDP_ACTIVATION_CHECKPOINTING",
        _is_on("write false; the training's gradient_checkpointing does it"),
    ),
    Key("`fsdp_offload_params`, `fsdp_reshard_after_forward`, `fsdp_auto_wrap_policy`", "Read: memory and speed."),
    Key("`deepspeed_config`: `zero_stage`", "Read."),
    Key("`offload_optimizer_device`, `offload_param_device`", "Read. The optimizer is then DeepSpeed's Adam."),
    Key(
        "`zero3_save_16bit_model`, in DeepSpeed's file `stage3_gather_16bit_weights_on_model_save`",
        "Taken as true: with false, the default of `accelerate config`, ZeRO-3 would end without a model.",
    ),
    Key(
        "`gradient_accumulation_steps`",
        "1, the default of `accelerate config`, is not read: it follows from `total_batch_size`. Another number has to "
        "be the training's.",
    ),
    Key(
        "`gradient_clipping`; in DeepSpeed's file also batch sizes, `fp16`, `bf16`",
        "Have to be the training's (`max_grad_norm`, ...) or `auto`, else they are refused.",
    ),
    Key(
        "`deepspeed_config_file`: `optimizer`, `scheduler`",
        "Not read: the training's `optim`, `learning_rate` and `lr_scheduler_type` are.",
    ),
)
"""What a launch file of one's own may say of what is trained or saved. Other keys say where processes run."""


def settle() -> None:
    """Check the launch file's variables, and have whole weights saved, before accelerate reads them.

    Raises:
        UserError: a run cannot be right with one; names the key and the remedy.
    """
    is_sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    for key in KEYS:
        # Left over in a shell's environment, those of FSDP have no effect without it.
        if key.variable.startswith("FSDP") and not is_sharded:
            continue
        value = os.environ.get(key.variable)
        if value and (remedy := key.refused(value)):
            name = key.name.rpartition("`: `")[2].strip("`")
            raise UserError(f"{name}: {value} in {PLACE} cannot be trained with; {remedy}")
    if is_sharded and (kind := os.environ.get("FSDP_STATE_DICT_TYPE")) != "FULL_STATE_DICT":
        os.environ["FSDP_STATE_DICT_TYPE"] = "FULL_STATE_DICT"
        _say(f"fsdp_state_dict_type: {kind} is taken as FULL_STATE_DICT, so that the model is saved whole")


def settle_deepspeed(training: TrainingArguments) -> None:
    """Reconcile DeepSpeed's configuration with the training's options, as far as this changes nothing unasked.

    Raises:
        UserError: it has other values than the training; names both.
    """
    if training.deepspeed_plugin is None:
        return
    config = training.deepspeed_plugin.hf_ds_config.config
    zero = config.get("zero_optimization", {})
    gathers = "stage3_gather_16bit_weights_on_model_save"
    if zero.get("stage") == 3 and zero.get(gathers) is not True:
        zero[gathers] = training.deepspeed_plugin.zero3_save_16bit_model = True
        _say("zero3_save_16bit_model: false is taken as true, so that the model is saved whole")
    if config.get("gradient_accumulation_steps") == 1:
        config["gradient_accumulation_steps"] = "auto"
    for section in ("optimizer", "scheduler"):
        if config.pop(section, None):
            _say(f"{section} of DeepSpeed's file is not read; the training's own options are")
    matched = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    matched.trainer_config_process(training)
    # Making it has put it in the plugin's place, by which models are loaded in parts.
    training.deepspeed_plugin.set_deepspeed_weakref()
    if matched.mismatches:
        # Such as "- ds gradient_clipping=0.5 vs hf max_grad_norm=1.0".
        differing = [
            line.removeprefix("- ds ").replace(" vs hf ", ", but the training ") for line in matched.mismatches
        ]
        raise UserError(
            f"{PLACE} has {'; '.join(differing)}; write auto there or leave it out, or give the training that value"
        )


def check_reference_loading(model: ModelConfig) -> None:
    """Refuse full-parameter training on pairs where only the first process has the reference model.

    Raises:
        UserError: accelerate's fsdp_cpu_ram_efficient_loading is on.
    """
    if os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING") == "true" and not model.use_peft:
        # TRL shards the reference model without sending it from the first process, which alone has read it.
        raise UserError(
            f"fsdp_cpu_ram_efficient_loading leaves the reference model uninitialised; set it to false in {PLACE} (as "
            "the profile fsdp2 does), or give --accelerate zero3"
        )


def _say(line: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        logger.warning("%s: %s", PLACE, line)
