"""What a run will need: memory of each GPU, tokens, steps and hours, computed from the model's shape and the data.

    python -m training.estimate --config configs/dpo/deepnote_qwen2.5-7b.yaml --rows 6000 --prompt_tokens 2000 \
        --completion_tokens 120 --gpus 8 --sharding zero3 --gpu A100

The formulas (N parameters, T of them trained, G GPUs; AdamW):

- weights: N x bytes of `dtype`; / G under ZeRO-3 and FSDP2, where two layers at a time are whole besides
- reference (DPO of all parameters, not precomputed): as the weights
- gradients: T x bytes of `dtype`; / G under ZeRO-2, ZeRO-3 and FSDP2
- optimizer: T x 8 (two moments in float32), and T x 4 where the weights have fewer than 32 bits (a float32 copy);
  / G under the three
- activations: with gradient checkpointing tokens x hidden x layers (what goes into each layer, in `dtype`) and the
  inside of one layer, without it the inside of all: tokens x (6 hidden + 2 key-value + 4 intermediate) x 2 bytes
- logits: two float32 tiles of at most 4,096 trained tokens x vocabulary (TRL's fused head never has more)
- operations: for each token 6 N (4 N with LoRA, whose base needs no gradients of its weights), 2 N for each forward
  pass of the reference, 2 N for recomputing under gradient checkpointing; attention 6 x layers x hidden x length more

They leave out what libraries hold besides (CUDA, NCCL buffers, fragmentation): plan for 10 to 20% more.
"""

import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
from trl import ModelConfig, get_peft_config

from notewriter import config
from notewriter.config import choose
from notewriter.errors import UserError, run

PEAK_TFLOPS = {
    "B200": 2250,
    "H200": 989,
    "H100": 989,
    "A100": 312,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "A40": 150,
    "A10": 125,
    "RTX 6000 Ada": 364,
    "RTX A6000": 155,
    "RTX 5090": 210,
    "RTX 4090": 165,
    "RTX 3090": 71,
}
"""Dense bfloat16 TFLOPS with float32 accumulation, from the makers' data sheets, by what a GPU's name contains."""

SHARDING = {"none": 0, "zero2": 2, "zero3": 3, "fsdp2": 3}
"""How much is divided among the GPUs, counted as ZeRO's stages are."""

TILE = 4096
GIB = 2**30


@dataclass(frozen=True)
class Shape:
    """What of a model counts here; `parameters` without an input embedding that is not also the head."""

    parameters: int
    computing: int
    trained: int
    layers: int
    hidden: int
    intermediate: int
    key_value: int
    vocabulary: int


@dataclass(frozen=True)
class Load:
    """What a run goes through: rows of one epoch and tokens over all of it, and the most in one forward pass."""

    rows: int
    forward_tokens: int
    """Tokens that the model computes in an epoch, without padding."""
    longest: int
    """Tokens of the longest row, as it goes through the model (both sides of a pair)."""
    longest_sequence: int
    """Tokens of the longest sequence, which attention sees."""
    trained: int
    """Trained tokens of the longest row."""


@dataclass
class Arguments:
    """The machine that an estimate is for."""

    gpus: int = field(default=1, metadata={"help": "how many GPUs train together"})
    sharding: str = field(default="none", metadata={"help": f"what is divided among them: {', '.join(SHARDING)}"})
    gpu: str | None = field(
        default=None, metadata={"help": f"for hours; one of: {', '.join(PEAK_TFLOPS)}; or give --peak_tflops"}
    )
    utilization: float = field(
        default=0.35, metadata={"help": "for hours: the share of the peak that is reached, recomputation included"}
    )


@dataclass
class SizeArguments:
    """Data that is not there yet."""

    method: str = field(default="dpo", metadata={"help": "dpo or sft"})
    rows: int = field(default=6000, metadata={"help": "rows of an epoch"})
    prompt_tokens: int = field(default=2000, metadata={"help": "tokens of a prompt, taken as all the same"})
    completion_tokens: int = field(default=120, metadata={"help": "tokens of a completion"})


def main(argv: list[str]) -> None:
    """Print the estimate for a training configuration and rows of a given size."""
    from training import train_dpo, train_sft

    script = choose("method", config.given(argv).get("method", "dpo"), {"dpo": train_dpo, "sft": train_sft})
    size, machine, arguments, training, model = config.parse(
        [SizeArguments, Arguments, script.Arguments, script.Configuration, ModelConfig],
        [*argv, "--bf16", "false"],
        prog="python -m training.estimate",
        description=__doc__,
    )
    sides = 2 if size.method == "dpo" else 1
    length = size.prompt_tokens + size.completion_tokens
    load = Load(size.rows, size.rows * sides * length, sides * length, length, sides * size.completion_tokens)
    sys.stdout.write(table(estimate(shape_of(model), load, machine, training, model, arguments.peak_tflops)))


def without_weights(model: ModelConfig) -> Any:
    """A model from its configuration alone: parameters have shapes and no values.

    Raises:
        UserError: there is no configuration of this name.
    """
    name = model.model_name_or_path
    try:
        configuration = AutoConfig.from_pretrained(name, revision=model.model_revision)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{name}: has no configuration to compute from ({' '.join(str(error).split())}); give a model's folder or "
            "its name on the Hugging Face Hub"
        ) from error
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(configuration)


def shape_of(model: ModelConfig) -> Shape:
    """The shape of a model from its configuration alone.

    Raises:
        UserError: there is no configuration of this name.
    """
    network = without_weights(model)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    embedding = network.get_input_embeddings().weight
    tied = embedding is network.get_output_embeddings().weight
    peft = get_peft_config(model)
    if peft is not None:
        network = get_peft_model(network, peft, low_cpu_mem_usage=True)
    text = network.config.get_text_config()
    heads = text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Shape(
        parameters=parameters,
        computing=parameters - (0 if tied else embedding.numel()),
        trained=sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=text.intermediate_size,
        key_value=(getattr(text, "num_key_value_heads", None) or heads) * size,
        vocabulary=text.vocab_size,
    )


def estimate(
    shape: Shape, load: Load, machine: Arguments, training: Any, model: ModelConfig, peak: float | None = None
) -> dict[str, float | int]:
    """Bytes of each GPU by what they hold, and tokens, steps, operations and hours of the run.

    `peak` is that of a GPU in TFLOPS where `machine.gpu` does not name one that is known.

    Raises:
        UserError: the machine has no GPUs, or a GPU or sharding that is not known.
    """
    stage = choose("sharding", machine.sharding, SHARDING)
    if machine.gpus < 1:
        raise UserError(f"gpus: {machine.gpus} do not train; give at least 1")
    divided = [1 if stage < least else machine.gpus for least in (3, 2, 1)]
    width = 2 if model.dtype in {"bfloat16", "float16"} else 4
    method_dpo = hasattr(training, "beta")
    reference = method_dpo and not model.use_peft and not getattr(training, "precompute_ref_log_probs", False)
    tokens = training.per_device_train_batch_size * load.longest
    if getattr(training, "packing", False):
        tokens = training.per_device_train_batch_size * training.max_length
    inside = tokens * (6 * shape.hidden + 2 * shape.key_value + 4 * shape.intermediate) * 2
    inputs = tokens * shape.hidden * width * shape.layers
    gathered = 2 * shape.parameters // shape.layers * 2 if stage == 3 else 0
    memory = {
        "weights": shape.parameters * width / divided[0] + gathered,
        "reference": (shape.parameters * width / divided[0]) if reference else 0,
        "gradients": shape.trained * width / divided[1],
        "optimizer": shape.trained * (8 if width == 4 else 12) / divided[2],
        "activations": inputs + inside if training.gradient_checkpointing else inside * shape.layers,
        "logits": 2
        * min(training.per_device_train_batch_size * load.trained, TILE)
        * shape.vocabulary
        * torch.float32.itemsize,
    }
    batch = training.total_batch_size or (
        training.per_device_train_batch_size * training.gradient_accumulation_steps * machine.gpus
    )
    epochs = training.num_train_epochs
    steps = training.max_steps if training.max_steps > 0 else -(-int(load.rows * epochs) // batch)
    share = steps * batch / max(load.rows, 1) if training.max_steps > 0 else epochs
    passes = (4 if model.use_peft else 6) + (2 if training.gradient_checkpointing else 0) + (2 if method_dpo else 0)
    attention = passes * shape.layers * shape.hidden * load.longest_sequence
    operations = load.forward_tokens * share * (passes * shape.computing + attention)
    peak = choose("gpu", machine.gpu, PEAK_TFLOPS) if machine.gpu else peak
    result: dict[str, float | int] = {name: round(value) for name, value in memory.items()}
    result |= {"total": round(sum(memory.values())), "tokens": round(load.forward_tokens * share), "steps": steps}
    result["operations"] = operations
    if peak:
        result["hours"] = operations / (machine.gpus * peak * 1e12 * machine.utilization) / 3600
    return result


def table(values: dict[str, float | int]) -> str:
    """An estimate as text, marked as one."""
    memory = [name for name in values if name not in {"total", "tokens", "steps", "operations", "hours"}]
    parts = ", ".join(f"{name} {values[name] / GIB:.1f}" for name in memory)
    hours = f", {values['hours']:.1f} hours" if "hours" in values else ""
    return (
        "computed, not measured:\n"
        f"  memory of a GPU: {values['total'] / GIB:.1f} GiB ({parts})\n"
        f"  {values['tokens']:,} tokens, {values['steps']:,} optimizer steps, {values['operations']:.2e} operations"
        f"{hours}\n"
    )


def peak_tflops(name: str) -> float | None:
    """The peak of a GPU in bfloat16 by the name that its driver gives it; None where it is not known."""
    return next((peak for part, peak in PEAK_TFLOPS.items() if part.lower() in name.lower().replace("-", " ")), None)


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
