"""The options of DPO, KTO and SFT: ours beside TRL's, which are checked before anything is loaded."""

import dataclasses
import importlib.util
import logging
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from annotated_types import Interval
from transformers import PreTrainedModel, TrainingArguments
from trl import DPOConfig, KTOConfig, ModelConfig, SFTConfig

from notewriter.ground.errors import UserError, install
from notewriter.ground.options import marked, option
from notewriter.models.processor import number_format
from notewriter.training import launch_file
from notewriter.training.profiles import forwards
from notewriter.training.run.losses import check_losses, check_read
from notewriter.training.sampler import BY_PROMPT

logger = logging.getLogger(__name__)

PACKABLE = ("sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")
"""Attention that keeps packed conversations apart: FlashAttention implementations by lengths, the others by a mask."""

HUB_ATTENTION = re.compile(r"kernels-community/(vllm-)?flash-attn\d?(@[\w.-]+)?")
"""FlashAttention from the Hub, built for the installed PyTorch; it keeps packed conversations apart too."""

ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
"""Kinds of layers that carry information from token to token by attention alone."""

KERNELS = {"fla": "flash-linear-attention", "causal_conv1d": "causal-conv1d"}
"""Modules whose recurrent layers reset at each conversation of a packed row -> the packages that provide them."""

BITSANDBYTES = re.compile(r"(paged_)?(adamw|lion|ademamix)(_bnb)?_(8|32)bit|(paged_)?ademamix|rmsprop_bnb(_(8|32)bit)?")
"""Names of the optimizers of bitsandbytes."""

PLACES = (
    "A folder with train.parquet and (for evaluation) dev.parquet; one Parquet, Arrow, JSON Lines, CSV or TSV file; "
    "any folder that `datasets` reads; or a dataset on the Hugging Face Hub, owner/name@revision:train,dev (revision "
    "and splits may be left out)"
)
"""Where training data may be, for the help of its options."""

LAUNCHED = os.environ.get("ACCELERATE_MIXED_PRECISION")
"""`mixed_precision` of the file that accelerate launched this process with; None without a launch."""

AUTO = "auto"
"""The value of `gradient_checkpointing` that recomputes what memory forces (`run.recomputation`)."""

DECIDED = (
    "assistant_only_loss",
    "completion_only_loss",
    "chat_template_path",
    "eos_token",
    "pad_token",
    "dataset_kwargs",
)
"""Options of SFTConfig that decide which tokens are trained; this package sets them."""


@dataclass(kw_only=True)
class SharedArguments:
    """The options of every script beside TRL's."""

    chat_template_kwargs: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "Variables of the model's chat template, such as {enable_thinking: false} for models that think by "
            'default, or {date_string: "26 Jul 2024"}. They become defaults of the trained model\'s template; give '
            "them to the commands that query the base model too."
        },
    )
    drop_long_rows: bool = option(
        False, "Train without the rows that max_length would cut, instead of refusing to start."
    )
    mix: dict[str, Annotated[float, Interval(gt=0)]] = field(
        default_factory=dict,
        metadata={
            "help": "Other data to mix into the training split, such as pairs of earlier rounds: file, folder or "
            'dataset name -> number of its rows per row of the data, such as {"runs/round-1/pairs": 0.25}. '
            "Rows are drawn with the seed; dev is not mixed."
        },
    )
    peak_tflops: Annotated[float, Interval(gt=0)] | None = option(
        None, "Peak bfloat16 TFLOPS of one GPU, for the MFU in the log; needed only for uncommon GPUs.", effect=False
    )


@dataclass(kw_only=True)
class PairArguments(SharedArguments):
    """The options that DPO and KTO share, beside TRL's configurations; KTO has no others."""

    pairs: str = field(
        metadata={
            "help": f"{PLACES}; rows have prompt, chosen and rejected, or whole conversations as chosen and rejected. "
            "A text in place of messages is one message of the user or of the assistant.",
            "effect": False,
        }
    )
    min_margin: float | None = option(
        None,
        "Leave out training pairs whose two scores differ by less than this, in the judge's unit (F1 for outcome). "
        "Pairs without scores are kept, and so is all of dev.",
    )
    train_end_of_turn: bool = option(
        True,
        "Whether the loss includes the end-of-turn token. false leaves it out on both sides and in dev: a pair then "
        "teaches what to write, and not when to stop.",
    )


@dataclass(kw_only=True)
class DPOArguments(PairArguments):
    """The options of DPO beside TRL's DPOConfig and ModelConfig."""

    prefix_sharing: bool = option(
        False,
        "Compute the prompt of a pair once instead of once for chosen and once for rejected: the same "
        "loss, faster where prompts are long, and less memory. Models that cannot share prompts are refused.",
    )
    reference_cache: str = option(
        "~/.cache/notewriter/reference",
        "With precompute_ref_log_probs: the folder of the reference's log-probs, shared by all runs that "
        "start from the same weights, whatever their other options.",
        effect=False,
        of="output",
    )


@dataclass(kw_only=True)
class SFTArguments(SharedArguments):
    """The options of SFT beside TRL's SFTConfig and ModelConfig."""

    data: str = field(
        metadata={
            "help": f"{PLACES}; rows have messages, or prompt and completion, or prompt and chosen. A text in place of "
            "messages is one message of the user or of the assistant.",
            "effect": False,
        }
    )
    split_turns: bool = option(
        False,
        "Make each turn of the assistant a row of its own, for chat templates that show earlier turns "
        "differently from how they were written (Qwen3 strips their thoughts).",
    )


# Inheriting TrainingArguments would put its defaults before those of TRL's configurations.
if TYPE_CHECKING:
    _TrainingArguments = TrainingArguments
    # As TRL has it.
    _Recomputed = bool
else:
    _TrainingArguments = object
    _Recomputed = Literal[True, False, "auto"]


@dataclass
class BatchConfiguration(_TrainingArguments):
    """A mixin for TRL's configurations: a batch size independent of the number of processes, and a number format.

    Unless the user chooses otherwise, forward and backward run in bfloat16 on a CUDA device and on a CPU that have
    units for it.
    """

    total_batch_size: int | None = option(
        None,
        "Rows of one optimizer step over all processes; gradient_accumulation_steps follows from it. One "
        "configuration then means the same training on one GPU and on eight. Two losses still depend on the number of "
        "processes: KTO estimates its divergence over the rows that all processes score at once, and aot sorts the "
        "pairs of one process.",
    )
    keep_weights: bool = option(
        False,
        "Reduce every checkpoint but the newest to its weights, stored in the base model's type: a sixth of the size, "
        "and enough to evaluate it (`notewriter evaluate --checkpoints`). The newest stays whole, to resume from. "
        "Leave out save_total_limit, which removes whole checkpoints.",
        effect=False,
    )

    gradient_checkpointing: _Recomputed = field(
        default=True,
        metadata={
            "help": "Recompute layers in the backward pass instead of keeping their activations: all (true), none "
            "(false), or only as many as the GPU's free memory requires (auto). Loss and gradients are the same.",
            "effect": False,
        },
    )
    memory_share: Annotated[float, Interval(gt=0, le=1)] = option(
        0.9,
        "With gradient_checkpointing auto: the share of the GPU's free memory that the estimated peak may use.",
        effect=False,
    )

    logging_nan_inf_filter: bool = option(
        False,
        "Log the mean loss of earlier steps in place of one that is not finite. The run ends at such a step in either "
        "case.",
        effect=False,
    )

    def __post_init__(self) -> None:
        launch_file.settle()
        deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true"
        # accelerate's profile for the CPU, on a machine that has GPUs too.
        self.use_cpu = self.use_cpu or os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
        self._choose_format(deepspeed)
        if not torch.accelerator.is_available():
            # Otherwise accelerate starts several processes on the CPU that are not connected.
            if deepspeed:
                self.ddp_backend = "gloo"
            else:
                self.use_cpu = True
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        self.accumulate(processes)
        self._check_saved()
        super().__post_init__()  # type: ignore[no-untyped-call]
        launch_file.settle_deepspeed(self)
        self._check_loading()
        if self.world_size != processes:
            raise UserError(
                f"{processes} processes were started but do not train together; start them with `notewriter train` "
                "and --accelerate ddp or another profile"
            )

    def _choose_format(self, deepspeed: bool) -> None:
        """Set the number format, for accelerate too, which otherwise goes by its launch file."""
        if self.bf16 is None and not self.fp16:
            self.fp16 = LAUNCHED == "fp16"
            self.bf16 = not self.fp16 and computes_in_bfloat16(self.use_cpu, deepspeed)
        os.environ["ACCELERATE_MIXED_PRECISION"] = format_of(self)

    def accumulate(self, processes: int) -> None:
        """Set `gradient_accumulation_steps` so that this number of processes makes up `total_batch_size`.

        Raises:
            UserError: `total_batch_size` is not a multiple of the rows of their forwards.
        """
        if self.per_device_train_batch_size < 1:
            raise UserError(
                f"per_device_train_batch_size: {self.per_device_train_batch_size} is below 1; give 1 or more"
            )
        if self.total_batch_size is not None:
            self.gradient_accumulation_steps = forwards(
                self.total_batch_size, processes, self.per_device_train_batch_size
            )

    def _check_saved(self) -> None:
        if self.save_only_model:
            raise UserError(
                "save_only_model: an interrupted run would go on without its optimizer and schedule; leave it out, and "
                "limit the checkpoints' disk space with save_total_limit"
            )
        if self.resume_from_checkpoint:
            raise UserError(
                "resume_from_checkpoint: a run resumes from the last checkpoint in its output_dir; leave it out, or "
                "give the checkpoint as model_name_or_path to begin a new run with its weights"
            )
        if optimizer_of(self).startswith("schedule_free"):
            raise UserError(
                f"optim: {optimizer_of(self)} trains averaged weights, which transformers saves only right after an "
                "evaluation; otherwise it saves those of the last step. Give another optimizer, such as adamw_torch"
            )

    def _check_loading(self) -> None:
        loading: dict[str, Any] = getattr(self, "model_init_kwargs", None) or {}
        if getattr(self, "trust_remote_code", False) or loading.get("trust_remote_code"):
            raise UserError("trust_remote_code: code that comes with a model is never run; leave it out")
        for key in ("token", "use_auth_token"):
            if key in loading:
                raise UserError(
                    f"model_init_kwargs: {key} would be written into the run's records; leave it out, and set HF_TOKEN "
                    "or log in with `hf auth login`"
                )


@dataclass
class DPOConfiguration(BatchConfiguration, DPOConfig):
    """TRL's DPOConfig with a batch size that does not depend on the number of processes, and a number format."""

    train_sampling_strategy: str = option(
        "random",
        "The order of pairs: 'random', 'sequential' (as in the files), 'prompts' (prompts in random order, the pairs "
        "of each prompt together, for prefix_sharing), 'group_by_length' or 'batch_rebalance'.",
        choices=["random", "sequential", BY_PROMPT, "group_by_length", "batch_rebalance"],
    )
    simpo_gamma: float = option(
        0.5,
        "With loss_type simpo: the target margin, by which beta times the mean token log-probability of chosen should "
        "exceed that of rejected.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_losses(self)
        if self.padding_free:
            raise UserError(
                "padding_free: TRL 1.16 ignores it in DPO; leave it out, and give --prefix_sharing true, which puts a "
                "batch into one row without padding"
            )


@dataclass
class KTOConfiguration(BatchConfiguration, KTOConfig):
    """TRL's KTOConfig with a batch size that does not depend on the number of processes, and a number format."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_read(self, ("ref_model_mixup_alpha", "ref_model_sync_steps"))
        if self.precompute_ref_log_probs:
            raise UserError(
                "precompute_ref_log_probs: is not possible with KTO: TRL's cache does not distinguish weights under "
                "ZeRO-3, and ours is for pairs; leave it out, and the reference scores in every step"
            )
        if self.loss_type == "kto" and self.train_sampling_strategy != "sequential":
            raise UserError(
                "train_sampling_strategy: KTO estimates its divergence within batches, whose order is drawn once with "
                "the seed; leave it out"
            )
        if self.loss_type == "kto" and self.per_device_train_batch_size < 2:
            raise UserError(
                f"per_device_train_batch_size: KTO estimates a divergence from the rows of a batch, and "
                f"{self.per_device_train_batch_size} is too few; give 2 or more"
            )


@dataclass
class SFTConfiguration(BatchConfiguration, SFTConfig):
    """TRL's SFTConfig with a batch size that does not depend on the number of processes, and a number format."""

    def __post_init__(self) -> None:
        for name in DECIDED:
            if getattr(self, name):
                raise UserError(
                    f"{name}: cannot be set, since the assistant's turns are trained under the chat template of the "
                    "model's folder; leave it out (to change the template, edit chat_template.jinja there)"
                )
        if self.packing and (self.packing_strategy != "bfd" or self.max_length is None):
            raise UserError(
                "packing: needs packing_strategy bfd, which keeps conversations whole and apart, and max_length; give "
                "both"
            )
        if self.padding_free and not self.packing and self.max_length is not None:
            raise UserError(
                "padding_free: TRL allows it without packing only where max_length is not set; give --packing true, "
                "which avoids padding too"
            )
        super().__post_init__()


Configuration = DPOConfiguration | KTOConfiguration | SFTConfiguration

OPTIONS: dict[str, tuple[type, type]] = {
    "dpo": (DPOArguments, DPOConfiguration),
    "kto": (PairArguments, KTOConfiguration),
    "sft": (SFTArguments, SFTConfiguration),
}
"""The options of each method of training, ours and TRL's."""

MARKS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    # Where a run logs and what it keeps, not what it computes.
    (("report_to", "run_name", "project", "disable_tqdm", "log_level", "logging_steps"), {"effect": False}),
    (("save_steps", "save_total_limit"), {"effect": False}),
    (("dataset_num_proc", "dataloader_num_workers", "ddp_timeout", "precompute_ref_batch_size"), {"effect": False}),
    (("output_dir",), {"effect": False, "of": "output"}),
    # On another number of processes these two make up the same batch.
    (("per_device_train_batch_size", "gradient_accumulation_steps"), {"effect": "total_batch_size"}),
    (("hub_token",), {"secret": True}),
    # The hyper-parameters that a paper's table lists.
    (("loss_type", "loss_weights", "beta", "simpo_gamma", "desirable_weight", "undesirable_weight"), {"listed": True}),
    (
        ("optim", "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm"),
        {"listed": True},
    ),
    (("num_train_epochs", "max_steps", "max_length", "packing"), {"listed": True}),
    (("neftune_noise_alpha", "seed", "bf16"), {"listed": True}),
)
"""Metadata that the fields of TRL's configurations lack (`ground.options`)."""

for _kind in (DPOConfiguration, KTOConfiguration, SFTConfiguration):
    for _names, _metadata in MARKS:
        marked(_kind, _names, **_metadata)
# KTO estimates its divergence from this number of rows.
marked(KTOConfiguration, ("per_device_train_batch_size",), effect=True)


def recomputes_by_need(training: TrainingArguments) -> bool:
    """Whether a run recomputes as many layers as memory forces."""
    return str(training.gradient_checkpointing) == AUTO


def format_of(training: TrainingArguments) -> str:
    """The number format of forward and backward, as accelerate names it."""
    return "bf16" if training.bf16 else "fp16" if training.fp16 else "no"


def computes_in_bfloat16(use_cpu: bool, deepspeed: bool) -> bool:
    """Whether forward and backward run in bfloat16 unless the user chooses otherwise."""
    if not use_cpu and torch.accelerator.is_available():
        # Before Ampere bfloat16 is emulated.
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    # With DeepSpeed transformers takes bfloat16 to mean a GPU's, and refuses.
    return number_format() == "bfloat16" and not deepspeed


def check_devices(training: TrainingArguments) -> None:
    """Refuse several GPUs in one process, which would each get a part of every batch.

    Raises:
        UserError: there are several; TRL's trainers would say so after loading the model.
    """
    if training.n_gpu > 1:
        raise UserError(
            f"one process has {training.n_gpu} GPUs; set CUDA_VISIBLE_DEVICES to one of them, or start a process for "
            "each with `notewriter train` and --accelerate ddp"
        )


def check_apart(network: PreTrainedModel) -> None:
    """Refuse to pack for a model in which a conversation would read the one before it in its row.

    Raises:
        UserError: the model ignores position ids that restart with each conversation.
    """
    config = network.config.get_text_config()
    others = {*(getattr(config, "layer_types", None) or ())} - ATTENTION_LAYERS
    reason = ""
    if not network._supports_attention_backend:
        reason = "has its own implementation of attention"
    elif config.model_type == "gpt_oss" and config._attn_implementation == "eager":
        reason = "does not tell eager attention where a conversation begins"
    elif (others or network._is_stateful) and not all(map(importlib.util.find_spec, KERNELS)):
        reason = f"has recurrent layers, which keep conversations apart only with {' and '.join(KERNELS.values())}"
    if reason:
        raise UserError(
            f"packing: {config.model_type} {reason}, so that each packed conversation would read the one before it; "
            "give --packing false"
        )


def check_packing(training: SFTConfig, model: ModelConfig) -> None:
    """Refuse attention that may not keep packed conversations apart.

    Raises:
        UserError: rows hold several of them, and the attention implementation is neither in `PACKABLE` nor
            `HUB_ATTENTION`.
    """
    attention = model.attn_implementation or "sdpa"
    if not (training.packing or training.padding_free) or attention in PACKABLE or HUB_ATTENTION.fullmatch(attention):
        return
    option = "packing" if training.packing else "padding_free"
    raise UserError(
        f"{option}: {attention} may not keep packed conversations apart; give --{option} false, or "
        f"--attn_implementation with one of {', '.join(PACKABLE)} or kernels-community/flash-attn2"
    )


def optimizer_of(training: TrainingArguments) -> str:
    """The name of a run's optimizer, which transformers makes an enumeration."""
    return str(getattr(training.optim, "value", training.optim))


def check_needs(training: Configuration, model: ModelConfig) -> None:
    """Check that the packages and the GPU that some options need are there, and that no quantized weight is trained.

    Raises:
        UserError: a package or the GPU is missing, or weights are quantized without an adapter.
    """
    quantized = next((option for option in ("load_in_4bit", "load_in_8bit") if getattr(model, option)), None)
    if quantized and not model.use_peft:
        raise UserError(
            f"{quantized}: quantized weights cannot be trained; add --use_peft true, which trains an adapter"
        )
    needed = {
        "bitsandbytes": quantized or ("optim" if BITSANDBYTES.fullmatch(optimizer_of(training)) else None),
        "liger-kernel": "use_liger_kernel" if training.use_liger_kernel else None,
        "kernels": "attn_implementation" if "/" in (model.attn_implementation or "") else None,
    }
    for package, needing in needed.items():
        if needing and importlib.util.find_spec(package.replace("-", "_")) is None:
            remedy = install("qlora") if package == "bitsandbytes" else f"run pip install {package}"
            raise UserError(f"{needing}: needs the package {package}; {remedy}")
    if training.activation_offloading and (training.use_cpu or not torch.accelerator.is_available()):
        raise UserError(
            "activation_offloading: moves activations from a GPU to main memory, and this machine has no GPU; leave it "
            "out"
        )


def check(arguments: SharedArguments, training: Configuration, model: ModelConfig) -> None:
    """Check that this machine can train with these options, before anything is loaded.

    Raises:
        UserError: it cannot.
    """
    check_devices(training)
    if model.lora_modules_to_save and model.dtype in {"bfloat16", "float16"}:
        logger.warning(
            "lora_modules_to_save: %s are trained in %s, in which small steps are lost; give --dtype float32 (the "
            "trained model is still stored in the base model's type)",
            ", ".join(model.lora_modules_to_save),
            model.dtype,
        )
    if isinstance(arguments, PairArguments):
        launch_file.check_reference_loading(model)
    if isinstance(training, SFTConfiguration):
        check_packing(training, model)
    check_needs(training, model)


def resolve(*arguments: Any) -> dict[str, Any]:
    """Every option with its value, usable as a `--config` file again; without tokens and passwords.

    An option that is None by default and has no value is left out.
    """
    options: dict[str, Any] = {}
    for part in arguments:
        values = part.to_dict() if isinstance(part, TrainingArguments) else dataclasses.asdict(part)
        unset = {each.name for each in dataclasses.fields(part) if each.default is None}
        options |= {
            key: value
            for key, value in values.items()
            if not key.endswith("_token") and (value is not None or key not in unset)
        }
    return options
