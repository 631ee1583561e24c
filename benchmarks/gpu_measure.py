"""The measurements of benchmarks/gpu.py, which starts this file as a process of its own; not a command to type.

Reads one JSON object from standard input (the options and the names of the measurements to take, in order) and writes
JSON lines to standard output: `{"begins": name}` before each measurement and its record after it. The libraries' own
output goes to standard error. A CUDA error other than running out of memory leaves the process useless, so it ends
with status 3 and is started again.
"""

import contextlib
import copy
import ctypes
import gc
import inspect
import io
import itertools
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gpu_shapes
import torch
from torch.nn.attention.varlen import varlen_attn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    ByT5Tokenizer,
    PreTrainedModel,
    TrainerCallback,
    set_seed,
)

Record = dict[str, Any]

VERSIONS = (
    "torch",
    "triton",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "pyarrow",
    "numpy",
    "flash-attn",
)

LAYERS = 2
"""Of the models that exactness is measured on; the widths are the real ones."""

ROWS = 1024
"""Queries whose scores the exact attention holds at a time."""

BETA = 0.1

PR_SET_PDEATHSIG = 1
"""Linux's option by which a process asks for a signal at the end of its parent."""

CUDA_ERROR = 3
"""The exit status after an error that the process cannot recover from."""


@dataclass(frozen=True)
class Machine:
    """What the measurements run on, and the user's paths."""

    device: torch.device
    toy: bool
    model: str | None
    pairs: str | None
    steps: int

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def reset_peak(self) -> None:
        """Forget the highest use of memory so far."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int | None:
        """The most bytes of tensors since then; None on the CPU, where PyTorch does not count them."""
        return torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None


def header(machine: Machine, command: str) -> Record:
    """The first line of the results: machine, versions and command."""
    versions = {"python": platform.python_version()}
    for package in VERSIONS:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    record: Record = {"device": platform.processor() or platform.machine(), "versions": versions, "command": command}
    # It grew options from release to release.
    record["varlen_attn"] = list(inspect.signature(varlen_attn).parameters)
    if machine.device.type == "cuda":
        properties = torch.cuda.get_device_properties(machine.device)
        record |= {
            "device": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
        }
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            record["driver"] = subprocess.check_output(query, text=True).split()[0]
    return record


def ceiling(machine: Machine, dtype: str) -> Record:
    """The rate of a large matrix product of random numbers, in TFLOP/s: the median of ten."""
    size = 128 if machine.toy else 8192
    left, right = (torch.randn(size, size, device=machine.device, dtype=getattr(torch, dtype)) for _ in range(2))
    seconds = [timed(machine, lambda: left @ right) for _ in range(13)][3:]
    return {"tflops": 2 * size**3 / statistics.median(seconds) / 1e12, "size": size}


def bandwidth(machine: Machine) -> Record:
    """The rate of a copy within the device's memory, in GB/s of bytes read and written: the median of ten."""
    source = torch.randn(2**18 if machine.toy else 2**30, device=machine.device)
    target = torch.empty_like(source)
    seconds = [timed(machine, lambda: target.copy_(source)) for _ in range(13)][3:]
    return {"gb_per_second": 2 * source.numel() * source.element_size() / statistics.median(seconds) / 1e9}


def timed(machine: Machine, work: Callable[[], Any]) -> float:
    """Seconds that some work takes on the device."""
    machine.synchronize()
    start = time.perf_counter()
    work()
    machine.synchronize()
    return time.perf_counter() - start


def exact_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention written out, for one sequence without padding; no kernel of a library takes part.

    Query has the shape (1, heads, length, head size), the result (1, length, heads, head size).
    """
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling

    def attend(rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int) -> torch.Tensor:
        scores = rows @ keys.transpose(2, 3) * scaling
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        own = torch.arange(start, start + rows.shape[2], device=rows.device)[:, None]
        other = torch.arange(keys.shape[2], device=rows.device)
        hidden = other > own
        if sliding_window is not None:
            hidden |= own - other >= sliding_window
        scores = scores.masked_fill(hidden, -torch.inf)
        if s_aux is not None:
            sinks = s_aux.view(1, -1, 1, 1).expand(*scores.shape[:3], 1).to(scores.dtype)
            scores = torch.cat([scores, sinks], dim=-1)
        return scores.softmax(-1)[..., : keys.shape[2]] @ values

    outputs = []
    for start in range(0, query.shape[2], ROWS):
        rows = query[:, :, start : start + ROWS]
        end = start + rows.shape[2]
        # Recomputed in the backward: the scores of 16,000 tokens would not fit.
        outputs.append(checkpoint(attend, rows, key[:, :, :end], value[:, :, :end], start, use_reentrant=False))
    return torch.cat(outputs, 2).transpose(1, 2), None


AttentionInterface.register("exact", exact_attention)
AttentionMaskInterface.register("exact", lambda *_, **__: None)


def random_model(machine: Machine, name: str, dtype: torch.dtype, attention: str, layers: int | None) -> Any:
    """A random model of a shape of `gpu_shapes`, on the device; the same weights every time."""
    configuration = gpu_shapes.configuration(name, layers=layers, toy=machine.toy)
    set_seed(0)
    with torch.device(machine.device):
        return AutoModelForCausalLM.from_config(
            configuration, dtype=dtype, attn_implementation=attention, trust_remote_code=False
        )


def stack(machine: Machine, pairs: gpu_shapes.Pairs, vocabulary: int) -> dict[str, torch.Tensor]:
    """Random pairs as TRL stacks them: the chosen rows above the rejected ones, padded on the right."""
    generator = torch.Generator().manual_seed(1)

    def tokens(count: int) -> torch.Tensor:
        return torch.randint(3, vocabulary, (count,), generator=generator)

    prompts = [tokens(length) for length in pairs.prompts]
    rows = [
        (prompt, tokens(both[side])) for side in (0, 1) for prompt, both in zip(prompts, pairs.completions, strict=True)
    ]
    length = max(len(prompt) + len(completion) for prompt, completion in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for row, (prompt, completion) in enumerate(rows):
        end = len(prompt) + len(completion)
        ids[row, :end], mask[row, :end] = torch.cat([prompt, completion]), 1
        labels[row, len(prompt) : end] = completion
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: tensor.to(machine.device) for name, tensor in batch.items()}


@dataclass
class Scores:
    """What scoring a batch gave: log-probs of the trained tokens, row after row, the loss, and all gradients."""

    log_probs: torch.Tensor
    loss: float
    gradients: dict[str, torch.Tensor]


def loss_of(sums: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The sigmoid DPO loss of summed log-probs, chosen above rejected (Rafailov et al. 2023, equation 7)."""
    chosen, rejected = (sums - reference).chunk(2)
    return -torch.nn.functional.logsigmoid(BETA * (chosen - rejected)).mean()


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The gradients of a model's trained parameters by name, in their own type."""
    return {
        name.replace("_orig_mod.", ""): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def score_alone(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> Scores:
    """Score each row without padding and without the others, with transformers' own forward.

    The reference log-probs of the loss are the very log-probs found, as in the first step of DPO: its gradient is then
    that of the margin, whatever the lengths.
    """
    rows = []
    for ids, mask, labels in zip(*batch.values(), strict=True):
        ids, labels = ids[mask.bool()], labels[mask.bool()]
        trained = int((labels != -100).sum())
        logits = model(input_ids=ids[None], use_cache=False, logits_to_keep=trained + 1).logits[0, :-1]
        rows.append(logits.float().log_softmax(-1).gather(1, labels[-trained:, None])[:, 0])
    sums = torch.stack([row.sum() for row in rows])
    loss = loss_of(sums, sums.detach())
    loss.backward()
    return Scores(torch.cat(rows).detach(), loss.item(), gradients_of(model))


def score_stack(model: torch.nn.Module, batch: dict[str, torch.Tensor], reference: torch.Tensor) -> Scores:
    """Score a stack with TRL's head, which a shared model lays out anew; `reference` is one log-prob for each row."""
    found = model(**batch, fused_lm_head=True, use_cache=False).log_probs
    loss = loss_of(found.float().sum(1), reference)
    loss.backward()
    return Scores(found.detach().float()[batch["labels"][:, 1:] != -100], loss.item(), gradients_of(model))


KEPT: dict[tuple[Any, ...], tuple[Any, dict[str, torch.Tensor], Scores]] = {}
"""The last reference: the variants of computing are compared with the same one."""


def reference(machine: Machine, name: str, batch_name: str, lora: bool) -> tuple[Any, dict[str, torch.Tensor], Scores]:
    """A float32 model whose weights bfloat16 represents exactly, a batch, and its exact scores."""
    key = (machine, name, batch_name, lora)
    if key in KEPT:
        return KEPT[key]
    # Two of them need not fit.
    KEPT.clear()
    gc.collect()
    model = random_model(machine, name, torch.bfloat16, "exact", LAYERS).float().train()
    if lora:
        model = with_adapter(model)
    batches = gpu_shapes.TOY_BATCHES if machine.toy else gpu_shapes.BATCHES
    batch = stack(machine, batches[batch_name], model.config.vocab_size)
    scores = score_alone(model, batch)
    model.zero_grad()
    KEPT[key] = (model, batch, scores)
    return KEPT[key]


def converted(model: torch.nn.Module, dtype: torch.dtype) -> Any:
    """A copy of a model with its parameters in a type; buffers (the frequencies of positions) stay in float32."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def with_adapter(model: PreTrainedModel) -> Any:
    """A model with LoRA on all linear layers, whose output is not zero as it would be at the start."""
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    set_seed(2)
    for key, parameter in adapted.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(parameter, std=0.01)
            # Exact in bfloat16, as the other weights are.
            parameter.data = parameter.data.bfloat16().to(parameter.dtype)
        elif "lora_A" in key:
            parameter.data = parameter.data.bfloat16().to(parameter.dtype)
    return adapted


@dataclass(frozen=True)
class Variant:
    """A way of computing that training offers."""

    dtype: torch.dtype = torch.bfloat16
    autocast: bool = False
    reentrant: bool | None = None
    """Gradient checkpointing, of PyTorch's older or newer kind; None is without."""
    lora: bool = False
    compiled: bool = False


VARIANTS = {
    "bf16": Variant(),
    "fp32": Variant(torch.float32),
    "autocast": Variant(torch.float32, autocast=True),
    "checkpointing": Variant(reentrant=False),
    "reentrant checkpointing": Variant(reentrant=True),
    "LoRA": Variant(lora=True),
    "compile": Variant(compiled=True),
}

FLOORS = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (1e-3, 1e-2)}
"""Errors that are never a fault: of a token's log-prob in nats, and of all gradients, relative."""

MOST = 1.5
"""Shared scoring may be so many times as far from the exact scores as stacked scoring is."""


def exactness(machine: Machine, name: str, batch_name: str, variant_name: str) -> Record:
    """How far stacked and shared scoring are from the exact scores, in one variant."""
    from trl.trainer.utils import add_fused_lm_head

    from training.prefix_sharing import share_prefixes

    variant = VARIANTS[variant_name]
    exact_model, batch, exact = reference(machine, name, batch_name, variant.lora)
    sums = [row.sum() for row in exact.log_probs.split((batch["labels"] != -100).sum(1).tolist())]
    record: Record = {"tokens": len(exact.log_probs), "pairs": len(sums) // 2}
    for way in ("stacked", "shared"):
        model = converted(exact_model, variant.dtype)
        bare = model.get_base_model() if variant.lora else model
        bare.set_attn_implementation(own_attention(bare))
        add_fused_lm_head(bare)
        if way == "shared":
            share_prefixes(bare)
        if variant.reentrant is not None:
            bare.gradient_checkpointing_enable({"use_reentrant": variant.reentrant})
            bare.enable_input_require_grads()
        scored: Any = (
            torch.compile(model, backend="aot_eager" if machine.toy else "inductor") if variant.compiled else model
        )
        autocast = torch.autocast(machine.device.type, dtype=torch.bfloat16, enabled=variant.autocast)
        machine.reset_peak()
        with autocast, attention_calls() as calls:
            found = score_stack(scored, batch, torch.stack(sums))
        if way == "shared":
            record["attention"] = " and ".join(sorted(calls)) or "scaled_dot_product_attention"
        record[way] = errors(found, exact)
    floor = FLOORS[torch.bfloat16 if variant.autocast else variant.dtype]
    # Written so that NaN is a fault.
    record["right"] = all(
        record["shared"][error] <= max(MOST * record["stacked"][error], least)
        for error, least in zip(("log_prob", "gradient"), floor, strict=True)
    )
    return record


def own_attention(model: PreTrainedModel) -> str:
    """The attention that transformers computes this model right with: SDPA knows neither sinks nor soft caps."""
    capped = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    return "sdpa" if model._supports_sdpa and not capped else "eager"


@contextlib.contextmanager
def attention_calls() -> Iterator[set[str]]:
    """The names of the attention functions of `training.prefix_sharing` that are called meanwhile."""
    from training import prefix_sharing

    called: set[str] = set()

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            called.add(name.strip("_"))
            return function(*arguments, **options)

        return call

    names = [
        name for name in ("_flash_attention", "_flex_attention", "_explicit_attention") if hasattr(prefix_sharing, name)
    ]
    functions = {name: getattr(prefix_sharing, name) for name in names}
    try:
        for name, function in functions.items():
            setattr(prefix_sharing, name, noting(name, function))
        yield called
    finally:
        for name, function in functions.items():
            setattr(prefix_sharing, name, function)


def errors(found: Scores, exact: Scores) -> Record:
    """The mean and the largest error of a log-prob, that of the loss, and those of the gradients, relative."""
    apart = (found.log_probs - exact.log_probs).abs()
    squares = {
        key: ((found.gradients[key].float() - gradient.float()).square().sum(), gradient.float().square().sum())
        for key, gradient in exact.gradients.items()
    }
    difference, size = (torch.stack(sums).sum().sqrt().item() for sums in zip(*squares.values(), strict=True))
    # A parameter whose gradient is next to nothing says nothing.
    share = {
        key: (one / other).sqrt().item()
        for key, (one, other) in squares.items()
        if other.sqrt().item() > 1e-3 * size / math.sqrt(len(squares))
    }
    worst = max(share, key=lambda key: share[key])
    return {
        "log_prob": apart.mean().item(),
        "largest_log_prob": apart.max().item(),
        "loss": abs(found.loss - exact.loss),
        "gradient": difference / size,
        "worst_gradient": share[worst],
        "worst_parameter": worst,
    }


def dependence(machine: Machine, name: str) -> Record:
    """How much the scores depend on the far half of the prompt: what a sharing that lost it would get wrong."""
    model, batch, exact = reference(machine, name, "ragged", False)
    other = dict(batch, input_ids=batch["input_ids"].clone())
    far = min((gpu_shapes.TOY_BATCHES if machine.toy else gpu_shapes.BATCHES)["ragged"].prompts) // 2
    other["input_ids"][:, :far] = other["input_ids"][:, :far].flip(1)
    changed = score_alone(model, other)
    return {"log_prob": (changed.log_probs - exact.log_probs).abs().mean().item()}


def kernel(machine: Machine, head_size: int, heads: int, key_heads: int, window: int | None) -> Record:
    """FlashAttention's `varlen_attn` as shared prompts call it, against attention written out in float32.

    Tells, too, whether a PyTorch without `enable_gqa` (before 2.12) takes fewer heads of keys than of queries.
    """
    prompt, chosen, rejected = 700, 130, 90
    generator = torch.Generator(machine.device).manual_seed(3)

    def states(count: int, length: int) -> torch.Tensor:
        return torch.randn(length, count, head_size, device=machine.device, generator=generator).bfloat16()

    query, key, value, weight = (
        states(count, prompt + chosen + rejected) for count in (heads, key_heads, key_heads, heads)
    )
    row = [tensor.requires_grad_() for tensor in (query, key, value)]
    again = torch.cat([torch.arange(prompt + chosen), torch.arange(prompt), torch.arange(prompt + chosen, len(query))])
    again = again.to(machine.device)
    options: dict[str, Any] = {
        "cu_seq_q": torch.tensor([0, prompt + chosen, len(query)], dtype=torch.int32, device=machine.device),
        "cu_seq_k": torch.tensor([0, prompt + chosen, len(again)], dtype=torch.int32, device=machine.device),
        "max_q": prompt + chosen,
        "max_k": prompt + max(chosen, rejected),
        "window_size": (-1 if window is None else window - 1, 0),
    }
    named = "enable_gqa" in inspect.signature(varlen_attn).parameters
    if named:
        options["enable_gqa"] = heads != key_heads
    found: Any = varlen_attn(row[0], row[1][again], row[2][again], **options)
    (found * weight).sum().backward()
    results = [found.detach(), *(tensor.grad for tensor in row)]

    exact_row = [tensor.detach().float().requires_grad_() for tensor in row]
    outputs = []
    for places, count in ((again[: prompt + chosen], prompt + chosen), (again[prompt + chosen :], rejected)):
        # As many queries as keys, of which the last ones count.
        queries, keys, values = (states_of[places][None].transpose(1, 2) for states_of in exact_row)
        attended, _ = exact_attention(torch.nn.Identity(), queries, keys, values, None, sliding_window=window)
        outputs.append(attended[0, -count:])
    exact = torch.cat(outputs)
    (exact * weight.float()).sum().backward()
    expected: list[Any] = [exact.detach(), *(tensor.grad for tensor in exact_row)]
    names = ("output", "query", "key", "value")
    record: Record = {
        name: ((one.float() - other).norm() / other.norm()).item()
        for name, one, other in zip(names, results, expected, strict=True)
    }
    return record | {"enable_gqa": named, "right": all(record[name] < 1e-2 for name in names)}


WARM_UP = 2
"""Steps that are not counted: they allocate, compile kernels and load libraries."""


class Stopwatch(TrainerCallback):
    """The seconds of each step from the end of the one before it, and the highest use of memory, after `WARM_UP`."""

    def __init__(self, machine: Machine, most_steps: int, most_seconds: float) -> None:
        self.machine, self.most_steps, self.most_seconds = machine, most_steps, most_seconds
        self.ends: list[float] = []
        self.peak: int | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the optimizer's step."""
        self.machine.synchronize()
        self.ends.append(time.perf_counter())
        steps = len(self.ends) - WARM_UP
        if steps <= 0:
            self.machine.reset_peak()
            return
        self.peak = self.machine.peak()
        enough = steps >= 3 and sum(self.seconds()) >= self.most_seconds
        if steps >= self.most_steps or enough:
            control.should_training_stop = True

    def seconds(self) -> list[float]:
        """The seconds of each step after `WARM_UP`."""
        ends = self.ends[WARM_UP - 1 :]
        return [end - start for start, end in itertools.pairwise(ends)]


class Profile(Stopwatch):
    """A stopwatch that has PyTorch's profiler watch the third and fourth step."""

    profiler: torch.profiler.profile
    began: float

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Before the forward."""
        if len(self.ends) == 2:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if self.machine.device.type == "cuda":
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self.profiler = torch.profiler.profile(activities=activities)
            self.profiler.start()
            self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the optimizer's step."""
        super().on_step_end(args, state, control)
        if len(self.ends) == 4:
            self.profiler.stop()
            control.should_training_stop = True


def best_attention() -> str:
    """The best attention that TRL's DPOTrainer can be given here: flash-attn's where it is installed."""
    from transformers.utils import is_flash_attn_2_available

    return "flash_attention_2" if is_flash_attn_2_available() else "sdpa"


def train(
    machine: Machine,
    watch: Stopwatch,
    *,
    shape: str,
    way: str,
    mode: str,
    prompt: int,
    completion: int,
    batch: int,
    checkpointing: bool = True,
    ragged: bool = False,
) -> Record:
    """Train a random model on random pairs for some steps; the options are those of the recipes in configs/dpo.

    `mode` is `LoRA` (bfloat16 weights, the reference is the model without its adapter) or `full` (float32 weights
    under autocast, the reference is a second model).
    """
    import datasets
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer

    from training.prefix_sharing import share_prefixes

    class Trainer(DPOTrainer):
        """TRL's, given token ids instead of text."""

        def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
            return dataset

    datasets.disable_progress_bars()
    attention = best_attention() if way == "TRL" else "sdpa"
    dtype = torch.bfloat16 if mode == "LoRA" else torch.float32
    layers = None
    if machine.toy:
        layers, prompt, completion = LAYERS, prompt // 50, completion // 10
    model = random_model(machine, shape, dtype, attention, layers)
    vocabulary = model.config.vocab_size
    generator = torch.Generator().manual_seed(4)

    def tokens(count: int) -> list[int]:
        return torch.randint(3, vocabulary, (count,), generator=generator).tolist()

    def length(mean: int) -> int:
        return int(torch.randint(mean // 2, mean + mean // 2 + 1, (), generator=generator)) if ragged else mean

    steps = watch.most_steps + WARM_UP
    rows = [
        {
            "prompt_ids": tokens(length(prompt)),
            "chosen_ids": tokens(length(completion)),
            "rejected_ids": tokens(length(completion)),
        }
        for _ in range(steps * batch)
    ]
    with tempfile.TemporaryDirectory() as folder:
        arguments = DPOConfig(
            output_dir=folder,
            per_device_train_batch_size=batch,
            max_steps=steps,
            max_length=None,
            learning_rate=1e-6,
            bf16=True,
            use_cpu=machine.device.type == "cpu",
            gradient_checkpointing=checkpointing,
            logging_steps=10_000,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        )
        adapter = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
        trainer = Trainer(
            model,
            ref_model=None if mode == "LoRA" else copy.deepcopy(model),
            args=arguments,
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=ByT5Tokenizer(),
            peft_config=adapter if mode == "LoRA" else None,
            callbacks=[watch],
        )
        if way == "shared":
            for each in (model, trainer.ref_model):
                if each is not None:
                    share_prefixes(trainer.accelerator.unwrap_model(each))
        machine.reset_peak()
        with attention_calls() as calls:
            trainer.train()
    lengths = [(len(row["prompt_ids"]), len(row["chosen_ids"]), len(row["rejected_ids"])) for row in rows]
    count = len(rows) / batch
    mean = {
        "tokens": sum(2 * p + c + r for p, c, r in lengths) / count,
        "unique_tokens": sum(p + c + r for p, c, r in lengths) / count,
        "squares": sum((p + c) ** 2 + (p + r) ** 2 for p, c, r in lengths) / count,
        "longest": batch * max(p + c + r if way == "shared" else 2 * (p + max(c, r)) for p, c, r in lengths),
    }
    record: Record = {"attention": " and ".join(sorted(calls)) if way == "shared" and calls else attention}
    record |= {"tokens": mean["tokens"], "unique_tokens": mean["unique_tokens"]}
    record |= figures(trainer.model, mode, mean)
    record |= predicted(machine, shape, mode, batch, mean, 2 * completion, checkpointing)
    return record


def figures(model: Any, mode: str, mean: dict[str, float]) -> Record:
    """The operations of a step that a model needs, forward and backward, without the reference and recomputation."""
    from training.throughput import operations

    each, attended = operations(model, mode == "LoRA")
    unique = mean["unique_tokens"]
    return {"operations": unique * each + attended * mean["squares"] * unique / mean["tokens"]}


def predicted(
    machine: Machine,
    shape: str,
    mode: str,
    batch: int,
    mean: dict[str, float],
    trained: int,
    checkpointing: bool,
) -> Record:
    """What training/cost_model.py says of the memory of such a run on one GPU, in bytes, part by part."""
    from trl import ModelConfig

    from training import cost_model
    from training.options import DPOConfiguration

    with tempfile.TemporaryDirectory() as folder:
        gpu_shapes.configuration(shape, layers=LAYERS if machine.toy else None, toy=machine.toy).save_pretrained(folder)
        model = ModelConfig(
            model_name_or_path=folder,
            dtype="bfloat16" if mode == "LoRA" else "float32",
            use_peft=mode == "LoRA",
            lora_r=32,
            lora_alpha=64,
            lora_target_modules=["all-linear"],
        )
        sizes = cost_model.shape_of(model)
    longest = round(mean["longest"] / batch)
    load = cost_model.Load(
        rows=1, forward_tokens=longest, longest=longest, longest_sequence=longest // 2, trained=trained
    )
    training = DPOConfiguration(
        output_dir="unused",
        per_device_train_batch_size=batch,
        gradient_checkpointing=checkpointing,
        use_cpu=machine.device.type == "cpu",
        bf16=True,
    )
    held, moments = cost_model.memory(sizes, load, cost_model.MachineArguments(), training, model, True)
    parts = {"held": held, "moments": moments}
    total = sum(held.values()) + max(moments.values())
    return {
        "predicted": {**{k: {n: round(v) for n, v in part.items()} for k, part in parts.items()}, "total": round(total)}
    }


def fast(machine: Machine, **options: Any) -> Record:
    """Seconds of a training step and its memory; the median of up to ten steps after `WARM_UP`."""
    watch = Stopwatch(machine, most_steps=2 if machine.toy else 10, most_seconds=5)
    record = train(machine, watch, **options)
    seconds = watch.seconds()
    median = statistics.median(seconds)
    return record | {
        "steps": len(seconds),
        "seconds": median,
        "slowest": max(seconds),
        "tokens_per_second": record["tokens"] / median,
        "unique_tokens_per_second": record["unique_tokens"] / median,
        "peak_bytes": watch.peak,
    }


KINDS = {
    "head": ("ChunkedLogProb",),
    "attention": ("attention", "attn", "flash"),
    "optimizer": ("Optimizer.", "_fused_adam", "_foreach"),
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    "copies by index": ("aten::index", "aten::cat", "aten::gather", "aten::scatter", "aten::split", "aten::masked"),
    "casts and copies": ("aten::copy_", "aten::clone", "aten::_to_copy", "Memcpy"),
}
"""What a profile is divided into, by what the operator or one around it is called; the first that fits counts."""


def profile(machine: Machine, **options: Any) -> Record:
    """Where the time of two training steps goes: seconds on the device by `KINDS`, and of the clock on the wall."""
    watch = Profile(machine, most_steps=10, most_seconds=1e9)
    record = train(machine, watch, **options)
    seconds: dict[str, float] = dict.fromkeys([*KINDS, "other"], 0.0)
    names: dict[str, float] = {}
    launches = 0
    for event in watch.profiler.events():
        used = event.self_device_time_total if machine.device.type == "cuda" else event.self_cpu_time_total
        # The kernels themselves are listed again beside the operators that launched them.
        on_device = event.device_type.name == "CUDA"
        launches += on_device and not event.is_user_annotation
        if on_device or used <= 0:
            continue
        around, callers = event, []
        while around is not None:
            callers.append(around.name)
            around = around.cpu_parent
        kind = next((kind for kind, words in KINDS.items() if any(w in c for w in words for c in callers)), "other")
        seconds[kind] += used / 1e6
        names[event.name] = names.get(event.name, 0.0) + used / 1e6
    wall = watch.ends[3] - watch.began
    largest = sorted(names, key=lambda name: -names[name])[:25]
    return record | {
        "seconds": seconds,
        "wall": wall,
        "busy": sum(seconds.values()) / wall,
        "launches": launches,
        "largest": {name: names[name] for name in largest},
    }


def real_run(machine: Machine, where: str, dtype: str) -> Record:
    """The losses of a few steps of DPO of a real model on real pairs, in a process of its own."""
    cpu = where == "cpu"
    options = {
        "config": Path(__file__).parents[1] / "configs/dpo/quickstart_smollm2.yaml",
        "model_name_or_path": machine.model,
        "pairs": machine.pairs,
        "max_steps": machine.steps,
        "use_cpu": cpu,
        "bf16": dtype == "bf16",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    argv = [part for key, value in options.items() for part in (f"--{key}", str(value))]
    environment = dict(os.environ, **({"CUDA_VISIBLE_DEVICES": ""} if cpu else {}))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--losses", *argv, "--output_dir", folder]
        start = time.perf_counter()
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"the run ended with status {run.returncode}: {run.stderr[-800:]}")
    return {"losses": json.loads(run.stdout.splitlines()[-1]), "total_seconds": time.perf_counter() - start}


def print_losses(argv: list[str]) -> None:
    """Train as training/train_dpo.py does and print the loss of each step as a JSON array."""
    from trl import ModelConfig

    from notewriter import config
    from training import pairs, rows, weights
    from training.options import DPOArguments, DPOConfiguration
    from training.tokenizer import load_tokenizer, stop_tokens
    from training.trainers import build_dpo_trainer

    channel = own_channel()
    arguments, training, model = config.parse([DPOArguments, DPOConfiguration, ModelConfig], argv)
    base, files = weights.named_base(model), rows.find_splits(arguments.pairs, "--pairs")
    tokenizer = load_tokenizer(base, model.model_revision, arguments.chat_template_kwargs)
    stops = stop_tokens(base, model.model_revision, tokenizer)
    datasets, _ = pairs.load(files, tokenizer, stops, training, arguments)
    trainer = build_dpo_trainer(base, tokenizer, datasets, arguments, training, model)
    trainer.train()
    channel.write(json.dumps([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]) + "\n")
    channel.flush()


MEASUREMENTS: dict[str, Callable[..., Record]] = {
    "ceiling": ceiling,
    "bandwidth": bandwidth,
    "kernel": kernel,
    "exactness": exactness,
    "dependence": dependence,
    "fast": fast,
    "profile": profile,
    "real_run": real_run,
}


def measure(machine: Machine, function: str, options: Record) -> tuple[Record, bool]:
    """A measurement's record, and whether the process is of use after it; being out of memory is a result."""
    start = time.perf_counter()
    usable = True
    try:
        record = {"outcome": "measured"} | MEASUREMENTS[function](machine, **options)
    except torch.OutOfMemoryError as error:
        record = {"outcome": "out of memory", "reason": str(error).splitlines()[0]}
        KEPT.clear()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        record = {"outcome": "failed", "reason": reason[:2000]}
        usable = "CUDA error" not in reason
        KEPT.clear()
    # Outside of the except clauses, whose error holds the frames and with them the tensors.
    gc.collect()
    if machine.device.type == "cuda" and usable:
        torch.cuda.empty_cache()
    return record | {"took": round(time.perf_counter() - start, 2)}, usable


def own_channel() -> io.TextIOBase:
    """What standard output was; from here on, what libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def main() -> None:
    """Take the measurements that standard input names."""
    # It ends with the process that started it, whatever ended that one: the next run needs the GPU.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = own_channel()

    def say(record: Record) -> None:
        channel.write(json.dumps(record) + "\n")
        channel.flush()

    request = json.loads(sys.stdin.readline())
    machine = Machine(torch.device(request["device"]), **request["machine"])
    if machine.device.type == "cuda":
        # Not in TF32.
        torch.set_float32_matmul_precision("highest")
    say({"header": header(machine, request["command"])})
    for name, function, options in request["measurements"]:
        say({"begins": name})
        record, usable = measure(machine, function, options)
        say({"name": name, "options": options} | record)
        if not usable:
            sys.exit(CUDA_ERROR)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--losses"]:
        print_losses(sys.argv[2:])
    else:
        main()
