"""The measurements by name, in the order in which they are taken."""

from collections.abc import Iterator
from dataclasses import dataclass

from .results import Record


@dataclass(frozen=True)
class Measurement:
    """A measurement: its name in the results, its function in `worker.MEASUREMENTS`, and that one's options."""

    name: str
    function: str
    options: Record
    limit: int = 120
    """Seconds after which it counts as hung."""


MODELS = ("Llama-3.1-8B", "Qwen2.5-7B", "Qwen3-8B", "Mistral-7B-v0.1", "Gemma-3-4B", "SmolLM2-135M")
SPECIAL = ("Gemma-2-9B", "gpt-oss-20b", "Qwen3-30B-A3B")
"""Soft caps, attention sinks, experts."""

HEADS = (
    ("Llama-3.1-8B", 128, 32, 8),
    ("Qwen2.5-7B", 128, 28, 4),
    ("Gemma-3-4B", 256, 8, 4),
    ("SmolLM2-135M", 64, 9, 3),
)
"""Head sizes and heads of queries and of keys, as models have them."""

SEVEN_BILLION, SMALL = ("Qwen2.5-7B", "LoRA"), ("Qwen2.5-1.5B", "full")


def plan() -> list[Measurement]:
    """All measurements, the most telling first."""
    return list({each.name: each for each in _plan()}.values())


def _plan() -> Iterator[Measurement]:
    for dtype in ("bfloat16", "float32"):
        yield Measurement(f"ceiling/{dtype}", "ceiling", {"dtype": dtype})
    yield Measurement("bandwidth", "bandwidth", {})
    for model, size, heads, key_heads in HEADS:
        for window in (None, 256):
            name = f"kernel/{model}/{f'window {window}' if window else 'no window'}"
            options: Record = {"head_size": size, "heads": heads, "key_heads": key_heads, "window": window}
            yield Measurement(name, "kernel", options)
    for model in ("Llama-3.1-8B", "Qwen2.5-7B"):
        yield from right(model, "ragged", "bf16", "autocast", "fp32", "checkpointing")
        yield Measurement(f"dependence/{model}", "dependence", {"name": model})
        yield from right(model, "ragged", "LoRA")
    for setting in (SEVEN_BILLION, SMALL):
        yield from fast(*setting, 2000, 100, 1)
    yield from fast(*SEVEN_BILLION, 2000, 100, 4)
    yield from fast(*SEVEN_BILLION, 2000, 100, 1, function="profile")
    for model in MODELS[2:]:
        yield from right(model, "ragged", "bf16", "autocast", "fp32")
    for where, dtype in (("gpu", "fp32"), ("cpu", "fp32"), ("gpu", "bf16")):
        options = {"where": where, "dtype": dtype}
        yield Measurement(f"real run/{where} {dtype}", "real_run", options, limit=240)
    for model in SPECIAL:
        yield from right(model, "ragged", "bf16", "autocast", "fp32")
    for model in MODELS:
        yield from right(model, "long", "bf16")
        yield from right(model, "short", "bf16", "fp32")
    yield from fast(*SMALL, 2000, 100, 4)
    for prompt in (8000, 500):
        for setting in (SEVEN_BILLION, SMALL):
            yield from fast(*setting, prompt, 100, 1)
    yield from fast(*SEVEN_BILLION, 2000, 400, 1)
    yield from fast(*SEVEN_BILLION, 2000, 100, 4, ragged=True)
    yield from fast(*SEVEN_BILLION, 2000, 100, 1, checkpointing=False)
    yield from fast(*SMALL, 2000, 100, 4, function="profile")
    for model in ("Llama-3.1-8B", "Qwen2.5-7B"):
        yield from right(model, "ragged", "reentrant checkpointing", "compile")
        yield from right(model, "short", "checkpointing", "LoRA")
        yield from right(model, "long", "autocast", "checkpointing", "LoRA")
    for prompt in (500, 8000, 2000):
        for completion in (100, 400):
            for batch in (4, 8, 1, 2):
                for setting in (SEVEN_BILLION, SMALL):
                    yield from fast(*setting, prompt, completion, batch)
    for model in SPECIAL:
        yield from right(model, "short", "bf16", "fp32", "checkpointing", "LoRA", "compile")


def right(model: str, batch: str, *variants: str) -> Iterator[Measurement]:
    """How far shared and stacked scoring are from exact scores, in some variants of computing."""
    for variant in variants:
        options = {"name": model, "batch_name": batch, "variant_name": variant}
        # FlexAttention is compiled for each length.
        limit = 240 if variant == "compile" or model in SPECIAL else 120
        yield Measurement(f"right/{model}/{batch}/{variant}", "exactness", options, limit)


def fast(
    shape: str,
    mode: str,
    prompt: int,
    completion: int,
    batch: int,
    function: str = "fast",
    checkpointing: bool = True,
    ragged: bool = False,
) -> Iterator[Measurement]:
    """Training steps of TRL's DPOTrainer as it comes, then with shared prompts."""
    options = {"shape": shape, "mode": mode, "prompt": prompt, "completion": completion, "batch": batch}
    name = f"{function}/{shape}/{mode}/{prompt}+{completion}/batch {batch}"
    if not checkpointing:
        options, name = options | {"checkpointing": False}, f"{name}/without checkpointing"
    if ragged:
        options, name = options | {"ragged": True}, f"{name}/ragged"
    for way in ("TRL", "shared"):
        yield Measurement(f"{name}/{way}", function, options | {"way": way}, 180)
