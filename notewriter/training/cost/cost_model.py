"""The needs of a run, computed from the model's shape and the data: memory of each GPU, tokens, steps and hours.

The formulas (N parameters, T of them trained, G GPUs, a layer of L parameters, a head of V x H; bytes; AdamW):

Held throughout, where "half" is bf16 or fp16:

|            | none, DDP               | ZeRO-2, half | ZeRO-3, half | FSDP2, half              |
|------------|-------------------------|--------------|--------------|--------------------------|
| weights    | `dtype` N               | 2 N          | 2 N / G      | 4 N / G, frozen: `dtype` |
| reference  | `dtype` N               | 2 N          | 2 N / G      | `dtype` N / G            |
| gradients  | as trained; DDP: twice  | 2 T / G      | 2 T / G      | 4 T / G                  |
| optimizer  | two moments, as trained | 12 T / G     | 12 T / G     | 8 T / G                  |
| bucket     |                         |              | 2 x 5e8      |                          |

DeepSpeed trains half-precision weights beside a float32 copy, whatever `dtype` is; accelerate gives FSDP2 float32
weights; LoRA's are float32 without either. With half switched off all of these are float32. ZeRO-3 with offload holds
the bucket alone, and the rest in the machine's memory. There is a reference in DPO of all parameters that does not
precompute its log-probs.

Quantized weights (QLoRA; Dettmers et al. 2023, arXiv 2305.14314, section 3) are those of linear layers, not the head's:
half a byte each with 4 bits, and for each 64 of them a scale of 4 bytes, or with nested quantization of 1 byte and, for
each 256 scales, another 4; a byte each with 8 bits. The others keep `dtype`, TRL trains the adapter in bfloat16, and a
layer is decompressed one matrix at a time. An 8-bit AdamW holds two moments of a byte each, and a scale of 4 bytes for
each 256.

Beside them, the largest of what each moment needs:

- layer: backward through a layer. What goes into each layer (tokens x H) and the inside of one; of layers that are not
  recomputed the inside instead, and no further one, since the first layers are recomputed and come last: tokens x (10 H
  + 2 key-value + 4 intermediate) x 2 (counted in PyTorch's saved tensors; the float32 residual stream of float32
  weights under autocast takes 6 H more); with LoRA in float32 under autocast tokens x 8 intermediate (measured on an
  H200, docs/results/gpu.md: 8.7; probably the gradient of the last linear layer's input, in half precision from the
  frozen weights and from the adapter, whose is in float32 first); the layers that are gathered, 2 (5e8 + L) under
  ZeRO-3 (weights used again within 1e9 parameters stay), 2 x 2 L under FSDP2; the gradients that are being reduced, 2
  x 5e8 twice under ZeRO-2 and, beside the bucket, once under ZeRO-3, 2 x 2 L under FSDP2
- head: backward through TRL's fused head. The layers' inputs and the gathered layers as before; the head's gradient in
  float32 and in the weights' type; under FSDP2 the gathered head (ZeRO-3 has given it back by then); a tile of at most
  4,096 trained tokens x 32,768 words
- forward: without sharding, autocast's half-precision copies of float32 weights; under FSDP2 with a reference 4 N, as
  TRL gathers the whole of it at once, into a buffer and out of it, beside the policy's head
- step: DeepSpeed's float32 gradients and the buffer that they come from, 6 T / G (at most 1e9 parameters a time)

Operations: `notewriter.training.cost.operations`.

They were read from DeepSpeed 0.19, accelerate 1.15, PyTorch 2.13 and TRL 1.16 with the files of configs/accelerate, and
leave out what libraries hold besides (CUDA, NCCL buffers, fragmentation): plan for 10 to 20% more.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, cast

import torch
from annotated_types import Interval
from datasets import Dataset
from peft import get_peft_model
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
)
from trl import DPOConfig, KTOConfig, ModelConfig, SFTConfig

from notewriter.ground import config
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.models.checkpoint import load, loading
from notewriter.training.cost.operations import FORWARD, PEAK_TFLOPS, UTILIZATION, passes, peak_tflops, per_token
from notewriter.training.inputs import rows
from notewriter.training.model.adapters import adapting, settings_of
from notewriter.training.options import BITSANDBYTES, Configuration, optimizer_of, recomputes_by_need
from notewriter.training.run.losses import is_reference_free

SHARDING = ("none", "zero2", "zero3", "zero3_offload", "fsdp2")
"""What is divided among the GPUs, by the files of configs/accelerate; `none` is `single` and `ddp`."""

BUCKET = 5 * 10**8
"""Gradients that DeepSpeed reduces at once (`reduce_bucket_size`), in a buffer of this size."""

REUSE = 10**9
"""The distance in parameters within which ZeRO-3 keeps weights for their next use (`stage3_max_reuse_distance`)."""

SUBGROUP = 10**9
"""Parameters of a GPU's share that ZeRO-3 updates at once (`sub_group_size`)."""

TILE = (4096, 32768)
"""Trained tokens and words of the vocabulary whose logits TRL's fused head has at a time."""

GIB = 2**30


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; `computing` are its parameters without an input embedding that is not also the head."""

    parameters: int
    computing: int
    trained: int
    layers: int
    hidden: int
    intermediate: int
    key_value: int
    vocabulary: int
    linear: int = 0
    """Parameters of the linear layers without the head, which quantization compresses."""


@dataclass(frozen=True)
class Load:
    """The data of a run: rows and tokens of an epoch, and the most in one forward pass."""

    rows: int
    """What batches are made of; with packing, rows of several conversations."""
    forward_tokens: int
    """Tokens that the model computes in an epoch, without padding."""
    longest: int
    """Tokens of the longest row of a forward pass (both sides of a pair)."""
    longest_sequence: int
    """Tokens of the longest sequence, which attention sees."""
    trained: int
    """Trained tokens of the longest row."""


def load_of(sizes: Sequence[tuple[int, ...]], shared: bool) -> Load:
    """The computation of a run over rows of a prompt and completions; `shared`: a pair's prompt counts once."""
    computed = [(1 if shared else len(completions)) * prompt + sum(completions) for prompt, *completions in sizes]
    return Load(
        rows=len(computed),
        forward_tokens=sum(computed),
        longest=max(computed),
        longest_sequence=max(prompt + max(completions) for prompt, *completions in sizes),
        trained=max(sum(completions) for _, *completions in sizes),
    )


@dataclass
class MachineArguments:
    """The machine that an estimate is for."""

    gpus: Annotated[int, Interval(ge=1, le=1_000_000)] = option(1, "number of GPUs that train together")
    sharding: str = option(
        "none",
        "how weights, gradients and optimizer are divided among them, by the profile of this name: "
        f"{', '.join(SHARDING)}",
    )
    gpu: str | None = option(None, f"for hours; one of: {', '.join(PEAK_TFLOPS)}; or give --peak_tflops")
    utilization: Annotated[float, Interval(gt=0, le=1)] | None = option(
        None,
        "for hours: the fraction of the peak that is reached, recomputation and the reference included; "
        f"without it {UTILIZATION}, about what was measured on an H200",
    )


def without_weights(model: ModelConfig) -> PreTrainedModel:
    """A model from its configuration alone, on the meta device: parameters have shapes but no values.

    Raises:
        UserError: its configuration cannot be loaded, or is not a language model's.
    """
    name = model.model_name_or_path or ""
    configuration = load(AutoConfig, name, revision=model.model_revision)
    # Some language models exist only as image-text models (Mistral 3).
    families = {
        AutoModelForCausalLM: MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoModelForImageTextToText: MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    }
    family = next((family for family, members in families.items() if type(configuration) in members), None)
    if family is None:
        raise UserError(f"{name}: {configuration.model_type} is not a language model; give another model")
    with loading(name), torch.device("meta"):
        return cast(PreTrainedModel, family.from_config(configuration, trust_remote_code=False))


def shape_of(model: ModelConfig) -> Shape:
    """The shape of a model from its configuration alone.

    Raises:
        UserError: as `without_weights`.
    """
    network = without_weights(model)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    embedding = cast(torch.nn.Parameter, network.get_input_embeddings().weight)
    tied = embedding is network.get_output_embeddings().weight
    text = network.config.get_text_config()
    head = network.get_output_embeddings()
    layers = [each for each in network.modules() if isinstance(each, torch.nn.Linear) and each is not head]
    linear = sum(each.weight.numel() for each in layers)
    peft = settings_of(model)
    with adapting():
        trained = network if peft is None else get_peft_model(network, peft, low_cpu_mem_usage=True)
    heads = text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Shape(
        parameters=parameters,
        computing=parameters - (0 if tied else embedding.numel()),
        trained=sum(parameter.numel() for parameter in trained.parameters() if parameter.requires_grad),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=text.intermediate_size,
        key_value=(getattr(text, "num_key_value_heads", None) or heads) * size,
        vocabulary=text.vocab_size,
        linear=linear,
    )


def compressed_width(model: ModelConfig) -> float | None:
    """Bytes of a quantized weight; None for a model that is not quantized."""
    if model.load_in_4bit:
        return 1 / 2 + (1 / 64 + 4 / (64 * 256) if model.use_bnb_nested_quant else 4 / 64)
    return 1 if model.load_in_8bit else None


def estimate(
    shape: Shape,
    load: Load,
    machine: MachineArguments,
    training: Configuration,
    model: ModelConfig,
    half: bool,
    peak: float | None = None,
) -> dict[str, Any]:
    """Bytes of each GPU by purpose, and tokens, steps, operations and hours of the run.

    `half`: whether the run computes in bf16 or fp16 (`in_half_precision`). `peak` is a GPU's in TFLOPS if
    `machine.gpu` is not set.

    Raises:
        UserError: an unknown GPU or sharding.
    """
    choose("sharding", machine.sharding, dict.fromkeys(SHARDING))
    if compressed_width(model) and machine.sharding != "none":
        raise UserError(
            f"sharding: there is no estimate of quantized weights with {machine.sharding}; give --sharding none"
        )
    needs = memory(shape, load, machine, training, model, half)
    batch = training.total_batch_size or (
        training.per_device_train_batch_size * training.gradient_accumulation_steps * machine.gpus
    )
    epochs = training.num_train_epochs
    steps = training.max_steps if training.max_steps > 0 else math.ceil(epochs * -(-load.rows // batch))
    share = steps * batch / max(load.rows, 1) if training.max_steps > 0 else epochs
    per_parameter = passes(
        model.use_peft, recomputed=bool(training.gradient_checkpointing), reference=scores_with_reference(training)
    )
    if isinstance(training, KTOConfig) and training.loss_type == "kto":
        # The mismatched completions, by the model and by its reference.
        per_parameter += 2 * FORWARD
    token, attended = per_token(per_parameter, shape.computing, shape.layers, shape.hidden)
    operations = load.forward_tokens * share * (token + attended * load.longest_sequence)
    if machine.gpu:
        peak = peak_tflops(machine.gpu) or choose("gpu", machine.gpu, PEAK_TFLOPS)
    result: dict[str, Any] = {
        "held": {name: round(value) for name, value in needs.held.items()},
        "moments": {name: round(value) for name, value in needs.moments.items()},
        "total": round(needs.total),
        "machine": round(needs.machine),
        "tokens": round(load.forward_tokens * share),
        "steps": steps,
        "operations": operations,
    }
    if recomputes_by_need(training):
        result["without_recomputation"] = round(memory(shape, load, machine, training, model, half, 0).total)
    if peak:
        reached = machine.utilization or UTILIZATION
        result["hours"] = operations / (machine.gpus * peak * 1e12 * reached) / 3600
    return result


class Memory(NamedTuple):
    """The bytes of a GPU that are held throughout, those of each moment beside them, and those in the machine's memory.

    With ZeRO-3's offload a GPU has its share of the machine's.
    """

    held: dict[str, float]
    moments: dict[str, float]
    machine: float = 0.0

    @property
    def total(self) -> float:
        """Bytes of a GPU at the peak."""
        return sum(self.held.values()) + max(self.moments.values())


def memory(
    shape: Shape,
    load: Load,
    machine: MachineArguments,
    training: Configuration,
    model: ModelConfig,
    half: bool,
    recomputed: int | None = None,
) -> Memory:
    """The memory that a run needs of a GPU (formulas above).

    `recomputed` is the number of recomputed layers; by default all with gradient checkpointing, also with `auto`.
    """
    deepspeed, fsdp = machine.sharding.startswith("zero"), machine.sharding == "fsdp2"
    zero3 = machine.sharding.startswith("zero3")
    lora = model.use_peft
    reference = has_reference(training, model)
    # Weights and gradients of each GPU are this much less where they are divided.
    weights_over = machine.gpus if zero3 or fsdp else 1
    trained = shape.trained / (machine.gpus if deepspeed or fsdp else 1)

    loaded = 2 if model.dtype in {"bfloat16", "float16"} else 4
    compute = 2 if half or loaded == 2 else 4
    width = 2 if deepspeed and half else 4 if fsdp and half and not lora else loaded
    compressed = compressed_width(model)
    trained_width = 2 if compressed else 4 if lora and not (deepspeed and half) else width
    optimizer = optimizer_of(training)
    eight_bit = BITSANDBYTES.fullmatch(optimizer) and "adamw" in optimizer and optimizer.endswith("_8bit")
    moment = 1 + 4 / 256 if eight_bit else trained_width
    held = {
        "weights": (shape.parameters * width - (width - compressed if compressed else 0) * shape.linear) / weights_over,
        "reference": reference * shape.parameters * (loaded if fsdp else width) / weights_over,
        "gradients": trained * trained_width * (2 if machine.sharding == "none" and machine.gpus > 1 else 1),
        "optimizer": trained * (12 if deepspeed and half else 2 * moment),
        "bucket": BUCKET * compute if zero3 else 0,
    }

    words = shape.vocabulary * shape.hidden
    layer = (shape.computing - words) // shape.layers
    tokens = training.per_device_train_batch_size * load.longest
    if isinstance(training, SFTConfig) and training.packing and training.max_length:
        tokens = training.per_device_train_batch_size * training.max_length
    # The residual stream of float32 weights stays in float32 under autocast.
    stream = 4 if width == 4 and not fsdp else compute
    if recomputed is None:
        recomputed = shape.layers if training.gradient_checkpointing else 0
    copies = shape.layers * layer * compute if stream > compute and not lora else 0
    inside = tokens * (10 * shape.hidden + 2 * shape.key_value + 4 * shape.intermediate) * compute
    inside += tokens * 6 * shape.hidden if stream > compute else 0
    whole_layers = shape.layers - recomputed
    kept = tokens * shape.hidden * stream * recomputed + (inside + copies / shape.layers) * whole_layers
    again = 0 if whole_layers else inside
    gathered = compute * (min(shape.layers * layer, REUSE // 2 + layer) if zero3 else 2 * layer if fsdp else 0)
    reduced = compute * (min(BUCKET, shape.trained) if deepspeed else 2 * layer if fsdp and not lora else 0)
    bucket = BUCKET * compute if machine.sharding == "zero2" else 0
    whole = compute if zero3 or fsdp else 0
    cast = compute if compute == 2 and (deepspeed or fsdp or loaded == 2) else 0
    head = whole if lora else 4 + (max(whole, cast) if zero3 else whole + cast)
    tile = min(training.per_device_train_batch_size * load.trained, TILE[0]) * TILE[1] * compute
    decompressed = shape.intermediate * shape.hidden * compute if compressed else 0
    adapter_gradient = 8 * tokens * shape.intermediate if lora and trained_width > compute else 0
    moments = {
        "layer": kept + again + gathered + bucket + reduced + decompressed + adapter_gradient,
        "head": kept + gathered + bucket + words * head + tile,
        "forward": kept + (reference * (2 * shape.parameters + words) * compute if fsdp else copies),
        "step": 6 * min(trained, SUBGROUP if zero3 else trained) if deepspeed and half else 0,
    }
    if machine.sharding != "zero3_offload":
        return Memory(held, moments)
    # The optimizer's float32 gradients are in the machine's memory too.
    elsewhere = sum(held.values()) - held["bucket"] + 4 * shape.trained / machine.gpus
    return Memory({"bucket": held["bucket"]}, moments | {"step": 0}, elsewhere)


def sizes_of(dataset: Dataset) -> list[tuple[int, ...]]:
    """The tokens of each row of pairs, sides or conversations: those that are not trained, then each completion's."""
    if "labels" in dataset.column_names:
        trained = [sum(label != rows.IGNORED for label in labels) for labels in dataset["labels"]]
        return [(length - count, count) for length, count in zip(dataset["length"], trained, strict=True)]
    sides = ("completion_ids",) if "completion_ids" in dataset.column_names else ("chosen_ids", "rejected_ids")
    columns = (dataset[name] for name in ("prompt_ids", *sides))
    return [tuple(map(len, row)) for row in zip(*columns, strict=True)]


def repeated_tokens(dataset: Dataset, batch: int) -> int:
    """The tokens that batches of pairs with shared prompts do not compute again (`prefix_sharing.repeated`).

    They are those of a pair's prompt, and of its chosen side, that the pair before it in the batch has too.
    """
    pairs = list(zip(dataset["prompt_ids"], dataset["chosen_ids"], strict=True))
    return sum(
        len(prompt) + (len(chosen) if chosen == chosen_before else 0)
        for number, ((prompt_before, chosen_before), (prompt, chosen)) in enumerate(itertools.pairwise(pairs), start=1)
        if number % batch and prompt == prompt_before
    )


def scores_with_reference(training: Configuration) -> bool:
    """Whether a run scores its rows with a reference too: DPO with most losses, and KTO."""
    if isinstance(training, DPOConfig):
        return not is_reference_free(training.loss_type)
    return isinstance(training, KTOConfig)


def has_reference(training: Configuration, model: ModelConfig) -> bool:
    """Whether a reference model is in memory: in training all parameters without its log-probs precomputed."""
    precomputed = not isinstance(training, SFTConfig) and training.precompute_ref_log_probs
    return scores_with_reference(training) and not (model.use_peft or precomputed)


def in_half_precision(argv: Sequence[str]) -> bool:
    """Whether a run with these options computes in bf16 or fp16 on a GPU, which is the default."""
    options = config.given(argv)
    bf16, fp16 = (str(options.get(name, "")).lower() for name in ("bf16", "fp16"))
    return fp16 == "true" or bf16 not in {"false", "no", "0"}


def table(values: dict[str, Any]) -> str:
    """An estimate as text."""
    held, moments = (
        ", ".join(f"{name} {size / GIB:.1f}" for name, size in values[part].items() if size)
        for part in ("held", "moments")
    )
    hours = f", {values['hours']:.1f} hours" if "hours" in values else ""
    if "without_recomputation" in values:
        moments += f"; without recomputation {values['without_recomputation'] / GIB:.1f}, between which auto chooses"
    machine = f", and {values['machine'] / GIB:.1f} GiB of the machine's for each" if values["machine"] else ""
    return (
        "computed, not measured:\n"
        f"  memory of a GPU: {values['total'] / GIB:.1f} GiB ({held}; and the largest of {moments}){machine}\n"
        f"  {values['tokens']:,} tokens, {values['steps']:,} optimizer steps, {values['operations']:.2e} operations"
        f"{hours}\n"
    )
