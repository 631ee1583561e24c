"""The launch file of accelerate: its keys that change the training or the saved model, and the treatment of each.

The file itself is checked where processes are started (`check_file`). accelerate passes its keys to the processes as
environment variables, whether they come from a file of `accelerate config`, options of `accelerate launch` or one of
our profiles (`settle`). A value with which training would go wrong is corrected, with a line in the log, or refused
before anything is loaded. docs/clusters.md has a table of the keys.
"""

import copy
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import launch_command_parser

from notewriter.ground.errors import UserError
from notewriter.ground.yaml_files import read_mapping

if TYPE_CHECKING:
    # The launcher does without them.
    from transformers import TrainingArguments
    from trl import ModelConfig

logger = logging.getLogger(__name__)

PLACE = "the file that accelerate launches with"

SECTIONS = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
"""Sections of a launch file -> the prefix of their options of `accelerate launch`, which their keys may leave out."""

OLDER = ("fp16", "dynamo_backend")
"""Keys at the top of a launch file that accelerate still translates."""

LEFT_OVER = (
    "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM", "ACCELERATE_USE_PARALLELISM",
    "ACCELERATE_DEEPSPEED_", "ACCELERATE_GRADIENT_", "FSDP_", "PARALLELISM_CONFIG_",
)  # fmt: skip
"""The prefixes of accelerate's variables that would keep a shell's values where a launch file leaves them out."""

IN_DEEPSPEEDS_FILE = (
    "gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
    "offload_param_device", "offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_save_16bit_model",
)  # fmt: skip
"""Keys of a launch file's `deepspeed_config` that accelerate refuses beside a `deepspeed_config_file`."""

Settings = Mapping[str, Any]


def _above_one(value: str) -> str:
    return "leave it out, or write 1" if value.isdecimal() and int(value) > 1 else ""


def _is_on(remedy: str) -> Callable[[str], str]:
    return lambda value: remedy if value.lower() in ("true", "1") else ""


def _format(value: str) -> str:
    return "" if value in ("no", "bf16", "fp16") else "write bf16, fp16 or no"


def _compiler(value: str) -> str:
    return "" if value.lower() == "no" else "leave it out; --torch_compile true compiles the model"


def _version(value: str) -> str:
    return "" if value == "2" else "write 2, as the profile fsdp2 does; version 1 is untested"


def _of(settings: Settings, section: str) -> Settings:
    found = settings.get(section)
    return found if isinstance(found, Mapping) else {}


def _faults(settings: Settings) -> Iterator[str]:
    """Of a whole file, the settings that cannot be trained with, each with its remedy."""
    kind = str(settings.get("distributed_type") or "NO")
    where = str(settings.get("compute_environment") or "LOCAL_MACHINE")
    if where != "LOCAL_MACHINE":
        yield f"compute_environment: {where} is not this machine; write LOCAL_MACHINE"
    if kind == "MULTI_CPU" or settings.get("mpirun_config"):
        yield (
            f"distributed_type: {kind} leaves the start of the processes to MPI; write MULTI_GPU with use_cpu: true, "
            "and leave mpirun_config out"
        )
    if kind in ("TPU", "XLA", "MEGATRON_LM"):
        yield f"distributed_type: {kind} cannot be trained with; write MULTI_GPU, FSDP or DEEPSPEED"
    if kind == "NO" and str(settings.get("num_processes") or 1) != "1":
        yield (
            f"num_processes: {settings['num_processes']}, but distributed_type: NO starts only one; write MULTI_GPU, "
            "or num_processes: 1"
        )
    if kind == "FSDP" and settings.get("use_cpu"):
        yield "use_cpu: true: on a CPU FSDP divides nothing; write distributed_type: MULTI_GPU"
    of_fsdp = _of(settings, "fsdp_config")
    version = str(of_fsdp.get("fsdp_version") or of_fsdp.get("version") or "1")
    if kind == "FSDP" and (remedy := _version(version)):
        yield f"fsdp_version: {version} cannot be trained with; {remedy}"
    of_deepspeed = _of(settings, "deepspeed_config")
    for key in ("offload_optimizer_device", "offload_param_device"):
        if of_deepspeed.get(key) == "nvme":
            yield f"{key}: nvme needs a path, which accelerate does not pass on; set both in a deepspeed_config_file"
    if name := of_deepspeed.get("deepspeed_config_file"):
        beside = [key for key in IN_DEEPSPEEDS_FILE if key in of_deepspeed]
        beside += ["mixed_precision"] if settings.get("mixed_precision") is not None else []
        for key in beside:
            yield f"{key}: cannot be given with deepspeed_config_file; leave it out, and set it in {name}"
        try:
            found = json.loads(Path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            yield f"deepspeed_config_file: {name}: cannot be read as JSON ({error}); correct it or its path"
        else:
            if not isinstance(found, dict) or "zero_optimization" not in found:
                yield f"deepspeed_config_file: {name}: has no zero_optimization; add it, with a stage"


REFUSED: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "ACCELERATE_MIXED_PRECISION": ("mixed_precision", _format),
    "ACCELERATE_DYNAMO_BACKEND": ("dynamo_config", _compiler),
    "PARALLELISM_CONFIG_TP_SIZE": ("parallelism_config_tp_size", _above_one),
    "PARALLELISM_CONFIG_CP_SIZE": ("parallelism_config_cp_size", _above_one),
    "PARALLELISM_CONFIG_SP_SIZE": ("parallelism_config_sp_size", _above_one),
    "ACCELERATE_USE_MEGATRON_LM": (
        "megatron_lm_config",
        _is_on("choose FSDP, DeepSpeed or several GPUs in `accelerate config`"),
    ),
    "FSDP_VERSION": ("fsdp_version", _version),
    "FSDP_ACTIVATION_CHECKPOINTING": (
        "fsdp_activation_checkpointing",
        _is_on("write false, and give the training option gradient_checkpointing instead"),
    ),
}
"""accelerate's environment variables -> the key, and the remedy for a value that cannot be trained with, or empty."""


def check_file(file: Path) -> None:
    """Check a launch file before processes are started.

    Raises:
        UserError: it cannot be read, or a run cannot be right with it; names the key and the remedy.
    """
    lines, settings = read_mapping(file, "check the path of the launch file")
    known = {*ClusterConfig.__dataclass_fields__, *OLDER}
    for key in settings:
        if key not in known:
            raise UserError(f"{file}:{lines[key]}: {key}: accelerate has no such key here; remove the line")
    for fault in _faults(settings):
        raise UserError(f"{file}: {fault}")
    options = vars(launch_command_parser().parse_args(["script"]))
    for section in settings:
        for key in _of(settings, section):
            name = str(key)
            if name not in options and SECTIONS.get(section, "") + name not in options:
                logger.warning("%s: %s: %s is no key of accelerate, and is not read", file, section, name)


def forget_others() -> None:
    """Remove the variables of an earlier launch, or of a shell, on how processes share the work."""
    for name in [name for name in os.environ if name.startswith(LEFT_OVER)]:
        logger.warning("%s=%s in the environment is not read; the launch file decides", name, os.environ.pop(name))


def settle() -> None:
    """Check the launch file's variables, and have whole weights saved, before accelerate reads them.

    Raises:
        UserError: a run cannot be right with one; names the key and the remedy.
    """
    is_sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    for variable, (key, refused) in REFUSED.items():
        # Left over in a shell's environment, those of FSDP have no effect without it.
        if variable.startswith("FSDP") and not is_sharded:
            continue
        value = os.environ.get(variable)
        if value and (remedy := refused(value)):
            raise UserError(f"{key}: {value} in {PLACE} cannot be trained with; {remedy}")
    if is_sharded and (kind := os.environ.get("FSDP_STATE_DICT_TYPE")) != "FULL_STATE_DICT":
        os.environ["FSDP_STATE_DICT_TYPE"] = "FULL_STATE_DICT"
        _say(f"fsdp_state_dict_type: {kind} is taken as FULL_STATE_DICT, so that the model is saved whole")


def settle_deepspeed(training: "TrainingArguments") -> None:
    """Reconcile DeepSpeed's configuration with the training's options, as far as this changes nothing unasked.

    Raises:
        UserError: it has other values than the training; names both.
    """
    if training.deepspeed_plugin is None:
        return
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    config = training.deepspeed_plugin.hf_ds_config.config
    zero = config.get("zero_optimization", {})
    gathers = "stage3_gather_16bit_weights_on_model_save"
    if zero.get("stage") == 3 and zero.get(gathers) is not True:
        zero[gathers] = training.deepspeed_plugin.zero3_save_16bit_model = True
        _say("zero3_save_16bit_model: false is taken as true, so that the model is saved whole")
    if config.get("gradient_accumulation_steps") == 1:
        config["gradient_accumulation_steps"] = "auto"
    # Without the first no gradient is clipped, whatever max_grad_norm is.
    for key in ("gradient_clipping", "train_batch_size", "train_micro_batch_size_per_gpu"):
        config.setdefault(key, "auto")
    for section in ("optimizer", "scheduler"):
        if config.pop(section, None):
            _say(f"{section} of DeepSpeed's file is not read; the options of training apply")
    matched = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    matched.trainer_config_process(training)
    # The line above has replaced the plugin's global reference, by which models are loaded in parts.
    training.deepspeed_plugin.set_deepspeed_weakref()
    if matched.mismatches:
        # Such as "- ds gradient_clipping=0.5 vs hf max_grad_norm=1.0".
        differing = [
            line.removeprefix("- ds ").replace(" vs hf ", ", but the training ") for line in matched.mismatches
        ]
        raise UserError(
            f"{PLACE} has {'; '.join(differing)}; write auto there or leave it out, or give the training that value"
        )


def check_reference_loading(model: "ModelConfig") -> None:
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
