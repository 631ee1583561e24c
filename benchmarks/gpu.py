"""Whether training and serving are right and fast on one NVIDIA GPU, and whether memory is what the estimate says.

    python benchmarks/gpu.py --output runs/gpu.jsonl
    python benchmarks/gpu.py --output runs/gpu.jsonl --model models/SmolLM2-135M-Instruct

Models are random ones of published shapes; `--model`, a folder, adds pair construction and evaluation on a vLLM server.
Each measurement runs in a process of its own and is one JSON line; running out of memory is a result. The same command
takes up what is missing or failed. docs/gpu.md says what the figures mean.
"""

import argparse
import copy
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import datasets
import torch
from peft import LoraConfig
from random_pairs import dpo_loss, random_pairs, score_alone
from torch.nn.attention.varlen import varlen_attn
from transformers import AutoConfig, AutoModelForCausalLM, ByT5Tokenizer, TrainerCallback, set_seed
from transformers.utils import is_flash_attn_2_available
from trl import DPOConfig, DPOTrainer, ModelConfig
from trl.trainer.utils import add_fused_lm_head

from notewriter.models.gpus import visible_gpus
from notewriter.training.cost import cost_model
from notewriter.training.cost.operations import peak_tflops
from notewriter.training.options import DPOConfiguration
from notewriter.training.run.throughput import operations
from notewriter.training.sharing.prefix_sharing import share_prefixes

Record = dict[str, Any]

SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SHAPES: dict[str, Record] = {
    name: {"model_type": family, **dict(zip(SIZES, sizes, strict=True)), "vocab_size": vocabulary} | others
    for name, family, sizes, vocabulary, others in (
        ("Llama-3.1-8B", "llama", (4096, 14336, 32, 32, 8), 128256, {}),
        ("Qwen2.5-7B", "qwen2", (3584, 18944, 28, 28, 4), 152064, {}),
        ("Qwen2.5-1.5B", "qwen2", (1536, 8960, 28, 12, 2), 151936, {"tie_word_embeddings": True}),
        ("Gemma-3-4B", "gemma3_text", (2560, 10240, 34, 8, 4), 262208, {"head_dim": 256, "sliding_window": 1024}),
    )
}
"""The published `config.json` of each model, as far as it decides what is computed."""

TOY: Record = {**dict(zip(SIZES, (64, 96, 2, 4, 2), strict=True)), "head_dim": 16, "vocab_size": 512}

PAIRS = ((2000, 100, 80), (1500, 60, 100))
"""Tokens of prompt, chosen and rejected of the pairs that exactness is measured on."""

FLOORS = {"float32": (1e-5, 1e-4), "bfloat16": (1e-3, 1e-2), "autocast": (1e-3, 1e-2)}
"""Errors that are never a fault: of a token's log-prob in nats, and of all gradients, relative."""

MEMORY_ERROR = 0.1
"""How far the estimate of a step's memory may be from its peak."""

QUESTIONS = 1000
"""Of pairs and evaluation; with fewer, a GPU is done before all requests are in flight."""

WARM_UP, STEPS = 2, 6
"""Training steps that allocate and compile, and those that are timed."""


def random_model(shape: str, dtype: torch.dtype, attention: str, device: str, toy: bool, layers: int = 0) -> Any:
    """A random model of one of `SHAPES`, with its own number of layers or `layers`; the same weights every time."""
    values = SHAPES[shape] | (TOY if toy else {}) | ({"num_hidden_layers": layers} if layers else {})
    if "sliding_window" in values:
        kinds = itertools.cycle(["sliding_attention", "full_attention"])
        values["layer_types"] = list(itertools.islice(kinds, values["num_hidden_layers"]))
        values["sliding_window"] = 24 if toy else values["sliding_window"]
    set_seed(0)
    configuration = AutoConfig.for_model(**values, max_position_embeddings=32768)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(
            configuration, dtype=dtype, attn_implementation=attention, trust_remote_code=False
        )


def kernel(device: str, toy: bool, heads: int, key_heads: int, size: int, window: int) -> Record:
    """PyTorch's FlashAttention as shared prompts call it, against attention in float32: relative errors.

    Of two sequences the second has fewer queries than keys, as a rejected completion that sees its prompt. A `window`
    of 0 is none.
    """
    length, queries = (83, 40) if toy else (830, 400)
    torch.manual_seed(3)
    counts = ((heads, length + queries), (key_heads, 2 * length), (key_heads, 2 * length))
    states = [torch.randn(tokens, count, size, device=device) for count, tokens in counts]
    halves = [state.bfloat16().requires_grad_() for state in states]
    of_queries, of_keys = (
        torch.tensor([0, length, length + last], dtype=torch.int32, device=device) for last in (queries, length)
    )
    span = (window - 1 if window else -1, 0)
    sequences = (of_queries, of_keys, length, length)
    output: Any = varlen_attn(halves[0], halves[1], halves[2], *sequences, window_size=span, enable_gqa=True)
    weight = torch.randn_like(output)
    computed = [output, *torch.autograd.grad((output * weight).sum(), halves)]

    exact_states = [half.detach().float().requires_grad_() for half in halves]
    sees = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    sees = sees.triu(1 - window) if window else sees
    parts = zip(
        *(state.transpose(0, 1)[None].split([length, state.shape[0] - length], dim=2) for state in exact_states),
        strict=True,
    )
    attend = torch.nn.functional.scaled_dot_product_attention
    outputs = [attend(query, key, value, sees[-query.shape[2] :], enable_gqa=True) for query, key, value in parts]
    output = torch.cat(outputs, dim=2)[0].transpose(0, 1)
    exact = [output, *torch.autograd.grad((output * weight.float()).sum(), exact_states)]
    errors = [((one.float() - other).norm() / other.norm()).item() for one, other in zip(computed, exact, strict=True)]
    return dict(zip(("output", "query", "key", "value"), errors, strict=True)) | {"right": max(errors) < 1e-2}


def exactness(device: str, toy: bool, shape: str) -> Record:
    """How far TRL's stacked scoring and shared scoring are from plain transformers: two layers of a real width.

    The truth scores each sequence by itself in float32 with attention written out ("eager"). Shared scoring is right
    where its errors are at most 1.5 times those of stacked scoring, or below `FLOORS`.
    """
    base = random_model(shape, torch.bfloat16, "eager", device, toy, layers=2).float().train()
    torch.manual_seed(1)
    sizes = [(prompt // 10, chosen // 10, rejected // 10) for prompt, chosen, rejected in PAIRS] if toy else PAIRS
    batch = random_pairs(sizes, base.config.vocab_size, device)
    exact, sums = score_alone(base, batch)
    gradients = {name: parameter.grad for name, parameter in base.named_parameters()}
    whole = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    base.zero_grad()
    record: Record = {"right": True}
    for computed, floors in FLOORS.items():
        bounds = floors
        for way in ("stacked", "shared"):
            model = copy.deepcopy(base).to(torch.bfloat16 if computed == "bfloat16" else torch.float32)
            model.set_attn_implementation("sdpa")
            add_fused_lm_head(model)
            if way == "shared":
                share_prefixes(model)
            with torch.autocast(device, torch.bfloat16, enabled=computed == "autocast"):
                log_probs = model(**batch, fused_lm_head=True, use_cache=False).log_probs.float()
            dpo_loss(log_probs.sum(1), sums).backward()
            apart = [(each.grad.float() - gradients[name]).norm() for name, each in model.named_parameters()]
            error = (log_probs[batch["labels"][:, 1:] != -100] - exact).abs().mean().item()
            errors = (error, (torch.stack(apart).norm() / whole).item())
            record[f"{computed}, {way}"] = {"log_prob": errors[0], "gradient": errors[1]}
            if way == "stacked":
                bounds = tuple(max(1.5 * one, least) for one, least in zip(errors, floors, strict=True))
            else:
                record["right"] &= all(error <= bound for error, bound in zip(errors, bounds, strict=True))
    return record


class Stopwatch(TrainerCallback):
    """When each step ended; the peak of the GPU's memory is that after the first ones."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        """After the optimizer's step."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            if len(self.ends) < WARM_UP:
                torch.cuda.reset_peak_memory_stats()
        self.ends.append(time.perf_counter())


class TokenTrainer(DPOTrainer):
    """TRL's trainer, given token ids instead of text."""

    def _prepare_dataset(self, dataset: Any, *_: object) -> Any:
        return dataset


def step(device: str, toy: bool, shape: str, mode: str, prompt: int, completion: int, batch: int) -> Record:
    """Seconds and memory of a DPO step, TRL's own and with shared prompts, on the same random pairs.

    Mode "LoRA": bfloat16 weights, rank 32 on all linear layers. "full": all parameters, in float32 under autocast, with
    a reference model in memory. TRL gets flash-attn where it is installed.
    """
    lora = mode == "LoRA"
    prompt, completion = (prompt // 50, completion // 10) if toy else (prompt, completion)
    best = "flash_attention_2" if is_flash_attn_2_available() else "sdpa"
    record: Record = {"TRL's attention": best, "limit": 2 * (prompt + completion) / (prompt + 2 * completion)}
    for way, attention in (("TRL", best), ("shared", "sdpa")):
        model = random_model(shape, torch.bfloat16 if lora else torch.float32, attention, device, toy)
        sides = {"prompt_ids": prompt, "chosen_ids": completion, "rejected_ids": completion}
        rows = [
            {name: torch.randint(3, model.config.vocab_size, (length,)).tolist() for name, length in sides.items()}
            for _ in range((WARM_UP + STEPS) * batch)
        ]
        options: Record = {"per_device_train_batch_size": batch, "bf16": True, "use_cpu": device == "cpu"}
        options |= {"num_train_epochs": 1, "logging_strategy": "no", "save_strategy": "no", "disable_tqdm": True}
        watch = Stopwatch()
        with tempfile.TemporaryDirectory() as folder:
            trainer = TokenTrainer(
                model,
                ref_model=None if lora else copy.deepcopy(model),
                args=DPOConfig(folder, **options, max_length=None, report_to="none"),
                train_dataset=datasets.Dataset.from_list(rows),
                processing_class=ByT5Tokenizer(),
                peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear") if lora else None,
                callbacks=[watch],
            )
            for each in filter(None, (model, trainer.ref_model) if way == "shared" else ()):
                share_prefixes(trainer.accelerator.unwrap_model(each))
            trainer.train()
        seconds = statistics.median(end - start for start, end in itertools.pairwise(watch.ends[WARM_UP - 1 :]))
        counts = operations(model, lora), operations(model, lora, recomputed=True, reference=True)
        done, executed = (
            batch * (prompt + 2 * completion) * (token + attended * (prompt + completion)) for token, attended in counts
        )
        longest = prompt + 2 * completion if way == "shared" else 2 * (prompt + completion)
        estimate = estimated_bytes(model, lora, longest, completion, options)
        record[way] = {
            "seconds": seconds,
            "tokens_per_second": 2 * batch * (prompt + completion) / seconds,
            "tflops": done / seconds / 1e12,
            "estimate_gib": estimate / 2**30,
        }
        if device == "cuda":
            peak, taken = peak_tflops(torch.cuda.get_device_name()), torch.cuda.max_memory_allocated()
            record[way] |= {
                "mfu": peak and record[way]["tflops"] / peak,
                "utilization": peak and executed / seconds / 1e12 / peak,
                "peak_gib": taken / 2**30,
                "estimate_over_peak": estimate / taken,
                "right": abs(estimate / taken - 1) <= MEMORY_ERROR,
            }
        # The other way's model needs the room.
        del trainer, model
        torch.cuda.empty_cache()
    return record | {"speedup": record["TRL"]["seconds"] / record["shared"]["seconds"]}


def estimated_bytes(model: Any, lora: bool, longest: int, completion: int, options: Record) -> float:
    """What the cost model says of such a step; `longest`: tokens of a pair as they go through the model."""
    load = cost_model.Load(1, longest, longest, longest_sequence=longest // 2, trained=2 * completion)
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        adapter: Record = {"use_peft": lora, "lora_r": 32, "lora_target_modules": ["all-linear"]}
        base = ModelConfig(folder, dtype="bfloat16" if lora else "float32", **adapter)
        training = DPOConfiguration(folder, **options)
        shape = cost_model.shape_of(base)
        return cost_model.memory(shape, load, cost_model.MachineArguments(), training, base, True).total


MEASUREMENTS: dict[str, tuple[Callable[..., Record], tuple[Any, ...]]] = {
    " ".join(map(str, (measure.__name__, *options))): (measure, options)
    for measure, settings in (
        (kernel, [(32, 8, 128, 0), (32, 8, 128, 256), (28, 4, 128, 0), (8, 4, 256, 256)]),
        (exactness, [(shape,) for shape in SHAPES]),
        (step, [("Qwen2.5-7B", "LoRA", *lengths) for lengths in ((2000, 100, 1), (2000, 100, 4), (8000, 100, 1))]),
        (step, [("Qwen2.5-1.5B", "full", *lengths) for lengths in ((2000, 100, 1), (2000, 100, 4), (8000, 100, 1))]),
    )
    for options in settings
}


def record_of(command: list[str]) -> Record:
    """What a command prints as its last line; one that fails, or hangs for ten minutes, is a record too."""
    # Ended by SIGTERM first, so that it stops its server.
    run = subprocess.run(["timeout", "--kill-after=30", "600", *command], capture_output=True, text=True)
    if run.returncode:
        return {"outcome": "failed", "reason": f"exit status {run.returncode}: {run.stderr[-2000:]}"}
    record: Record = json.loads(run.stdout.splitlines()[-1])
    return {"outcome": "measured"} | record


def main() -> None:
    """Take the measurements that the output lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/gpu.jsonl"), help="results, a JSON line each")
    parser.add_argument("--model", help="a model folder to serve with vLLM, for pairs and evaluation")
    parser.add_argument("--only", default="", metavar="REGEX", help="the measurements whose names match")
    parser.add_argument("--toy", action="store_true", help="tiny sizes on the CPU, to try the script")
    parser.add_argument("--take", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.take:
        measure, options = MEASUREMENTS[arguments.take]
        try:
            record = measure("cpu" if arguments.toy else "cuda", arguments.toy, *options)
        except torch.OutOfMemoryError as error:
            record = {"outcome": "out of memory", "reason": str(error).splitlines()[0]}
        sys.stdout.write("\n" + json.dumps(record))
        return
    # One process that sees several would divide each batch among them.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    lines = arguments.output.read_text().splitlines() if arguments.output.exists() else []
    finished = {record["name"] for record in map(json.loads, lines) if record["outcome"] != "failed"}
    with arguments.output.open("a", encoding="utf-8") as output:
        for record in records(arguments, finished):
            for stream in (output, sys.stdout):
                stream.write(json.dumps(record) + "\n")
                stream.flush()


def records(arguments: argparse.Namespace, finished: set[str]) -> Iterator[Record]:
    """The machine, and each measurement that was asked for and is not finished."""
    gpu = "none" if arguments.toy else torch.cuda.get_device_name()
    driver = next((each.driver for each in visible_gpus()), None)
    packages = {"torch", "triton", "transformers", "trl", "peft", "accelerate", "vllm", "flash-attn"}
    # Of a package that is installed twice the one that is imported, which comes first.
    versions = {each.name: each.version for each in reversed(list(distributions())) if each.name in packages}
    machine = {"name": "machine", "outcome": gpu, "cuda": torch.version.cuda, "driver": driver, "versions": versions}
    yield machine | {"command": sys.argv}
    commands = {name: [__file__, *["--toy"] * arguments.toy, "--take", name] for name in MEASUREMENTS}
    for name, script in (("pairs", "rollouts.py"), ("evaluation", "evaluation.py")) if arguments.model else ():
        asked = [] if arguments.toy else ["--questions", str(QUESTIONS)]
        commands[name] = [str(Path(__file__).parent / script), "--model", arguments.model, *asked]
    for name, command in commands.items():
        if name not in finished and re.search(arguments.only, name):
            start = time.perf_counter()
            record = {"name": name} | record_of([sys.executable, *command])
            yield record | {"took": round(time.perf_counter() - start, 1)}


if __name__ == "__main__":
    main()
