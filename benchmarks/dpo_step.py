"""The speed-up of DPO with shared prompts over TRL's stacked pairs, measured pair by pair in one run.

    python benchmarks/dpo_step.py --model models/SmolLM2-135M-Instruct --prompts 300 --completion 60
    python benchmarks/dpo_step.py --model models/SmolLM2-135M-Instruct --prompts 500 1400 4000

Times a forward and backward of the loss, and the reference's forward without gradients; the order of the two changes
from pair to pair. A JSON object for each length of prompt, the last line for the last:

    speedup, reference_speedup   medians of the ratios of seconds, TRL's to shared
    limit                        2(P + C) / (P + 2C), the most that sharing alone can give. Without a GPU, TRL scores
                                 every position with the language-model head; skipping those of the prompt comes on
                                 top.
    loss_error, gradient_error   the largest relative difference of a pair's loss, and of all its gradients together
    memory_mb, trl_memory_mb     the peak memory of a forward and backward, less the memory in use before them
"""

import argparse
import copy
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from random_pairs import Batch, dpo_loss, random_pairs
from transformers import AutoModelForCausalLM, PreTrainedModel
from trl.trainer.utils import add_fused_lm_head

from notewriter.training.sharing.prefix_sharing import share_prefixes


def loss_of(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """A reference-free DPO loss."""
    loss: torch.Tensor = dpo_loss(model(**batch, fused_lm_head=True, use_cache=False).log_probs.sum(1))
    return loss


def step(model: torch.nn.Module, batch: Batch) -> float:
    """Forward and backward; returns the loss."""
    loss = loss_of(model, batch)
    loss.backward()
    return loss.item()


def score(model: torch.nn.Module, batch: Batch) -> float:
    """Forward as for the reference; returns the loss."""
    with torch.no_grad():
        return loss_of(model, batch).item()


def measure(work: Callable[[], float]) -> tuple[float, float, float]:
    """Run; returns the result, the seconds, and the peak memory in megabytes beyond what was in use before."""
    before = memory(reset=True)
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return result, seconds, memory() - before


def memory(reset: bool = False) -> float:
    """The peak memory since the last reset, in megabytes: the GPU's, or on the CPU the process's (Linux)."""
    if torch.cuda.is_available():
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated() / 1e6
    if reset:
        # Resets the peak to the current use.
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1e3


def difference(plain: torch.nn.Module, shared: torch.nn.Module) -> float:
    """The norm of the difference of two models' gradients, relative to the first one's."""
    apart, whole = torch.zeros(()), torch.zeros(())
    for a, b in zip(plain.parameters(), shared.parameters(), strict=True):
        if a.grad is not None and b.grad is not None:
            apart = apart.to(a.grad) + (a.grad - b.grad).square().sum()
            whole = whole.to(a.grad) + a.grad.square().sum()
    return float((apart / whole).sqrt())


def compare(models: list[PreTrainedModel], prompt: int, completion: int, pairs: int) -> dict[str, float]:
    """Time both models on `pairs` pairs, after one warm-up pair."""
    ratios, reference_ratios, loss_errors, gradient_errors = [], [], [], []
    peaks: list[list[float]] = [[], []]
    for number in range(pairs + 1):
        vocabulary = models[0].config.get_text_config().vocab_size
        batch = random_pairs([(prompt, completion, completion)], vocabulary, models[0].device)
        losses, seconds, reference_seconds = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            models[which].zero_grad()
            _, reference_seconds[which], _ = measure(functools.partial(score, models[which], batch))
            losses[which], seconds[which], peak = measure(functools.partial(step, models[which], batch))
            peaks[which].append(peak)
        if number:
            ratios.append(seconds[0] / seconds[1])
            reference_ratios.append(reference_seconds[0] / reference_seconds[1])
            loss_errors.append(abs(losses[1] - losses[0]) / abs(losses[0]))
            gradient_errors.append(difference(*models))
            sys.stdout.write(
                f"prompt {prompt}, pair {number}: TRL {seconds[0]:.2f} s, shared {seconds[1]:.2f} s; "
                f"reference {reference_seconds[0]:.2f} s, {reference_seconds[1]:.2f} s\n"
            )
            sys.stdout.flush()
    return {
        "prompt": prompt,
        "completion": completion,
        "speedup": round(statistics.median(ratios), 2),
        "reference_speedup": round(statistics.median(reference_ratios), 2),
        "limit": round(2 * (prompt + completion) / (prompt + 2 * completion), 2),
        "loss_error": max(loss_errors),
        "gradient_error": max(gradient_errors),
        "memory_mb": round(max(peaks[1])),
        "trl_memory_mb": round(max(peaks[0])),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model folder")
    parser.add_argument("--prompts", type=int, nargs="+", default=[1400], help="tokens of the prompt, one or several")
    parser.add_argument("--completion", type=int, default=120, help="tokens of each completion")
    parser.add_argument("--pairs", type=int, default=5, help="pairs to time, after one warm-up pair")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "bfloat16"], help="of weights and activations"
    )
    arguments = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, arguments.dtype)
    plain: PreTrainedModel = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=dtype, trust_remote_code=False)
    # The annotation of transformers' wrapper has no `self`.
    plain.to(torch.device(device))  # type: ignore[arg-type]
    shared = copy.deepcopy(plain)
    for model in (plain, shared):
        model.train()
        add_fused_lm_head(model, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
    share_prefixes(shared)
    for prompt in arguments.prompts:
        result = compare([plain, shared], prompt, arguments.completion, arguments.pairs)
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
