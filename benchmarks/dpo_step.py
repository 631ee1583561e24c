"""How much faster DPO's forward and backward are with shared prompts than with TRL's stack: pair by pair, one run.

    python benchmarks/dpo_step.py --model models/SmolLM2-135M-Instruct --prompt 300 --completion 60

The last line is a JSON object: `speedup` (median of the ratios), `limit` (2(P + C) / (P + 2C), what sharing
alone can give; the head that scores completion positions only comes on top), `loss_error` and
`gradient_error` (relative).
"""

import argparse
import copy
import json
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from training.prefix_sharing import share_prefixes


def stack(prompt: int, completion: int, vocabulary: int) -> dict[str, torch.Tensor]:
    """One random pair as TRL stacks it: the chosen row above the rejected one."""
    shared = torch.randint(100, vocabulary, (prompt,))
    rows = torch.stack([torch.cat([shared, torch.randint(100, vocabulary, (completion,))]) for _ in range(2)])
    labels = rows.clone()
    labels[:, :prompt] = -100
    return {"input_ids": rows, "attention_mask": torch.ones_like(rows), "labels": labels}


def step(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Forward and backward of a reference-free DPO loss; returns (seconds, loss)."""
    model.zero_grad()
    start = time.perf_counter()
    chosen, rejected = model(**batch, fused_lm_head=True, use_cache=False).log_probs.sum(1)
    loss = -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected))
    loss.backward()
    return time.perf_counter() - start, loss.item()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model folder")
    parser.add_argument("--prompt", type=int, default=300, help="tokens of the prompt")
    parser.add_argument("--completion", type=int, default=60, help="tokens of each completion")
    parser.add_argument("--pairs", type=int, default=5, help="pairs to time, after one that is not counted")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    plain = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).train()
    shared = copy.deepcopy(plain)
    for model in (plain, shared):
        add_fused_lm_head(model, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
    share_prefixes(shared)
    ratios, loss_errors, gradient_errors = [], [], []
    for number in range(arguments.pairs + 1):
        batch = stack(arguments.prompt, arguments.completion, plain.config.vocab_size)
        (slow, expected), (fast, loss) = step(plain, batch), step(shared, batch)
        difference = sum(
            (a.grad - b.grad).square().sum() for a, b in zip(plain.parameters(), shared.parameters(), strict=True)
        )
        size = sum(parameter.grad.square().sum() for parameter in plain.parameters())
        if number:
            ratios.append(slow / fast)
            loss_errors.append(abs(loss - expected) / abs(expected))
            gradient_errors.append((difference / size).sqrt().item())
            sys.stdout.write(f"pair {number}: TRL {slow:.2f} s, shared {fast:.2f} s\n")
    total = arguments.prompt + arguments.completion
    result = {
        "speedup": round(statistics.median(ratios), 2),
        "limit": round(2 * total / (total + arguments.completion), 2),
        "loss_error": max(loss_errors),
        "gradient_error": max(gradient_errors),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
