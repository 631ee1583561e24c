"""A check at the start of a run that sharing prompts changes no score: some pairs are scored shared and stacked.

`prefix_sharing` judges by a model's configuration whether it can share prompts, and cannot know every layer,
kernel and library version. So the run's own model, in its own precision and sharding, scores pairs both ways, without
gradients.

Beyond a difference that is never taken for a fault, the tolerance comes from a third scoring: stacked again, with
embeddings perturbed by one unit in the last place of the run's number format. It is as valid as the first, but
everything after the embeddings is rounded differently; the two differ by the effect of rounding in this model on these
pairs. (Perturbing every operation at random is known as Monte Carlo arithmetic: Parker 1997, "Monte Carlo Arithmetic:
exploiting randomness in floating-point arithmetic".) Correct sharing differs by about as much, because it rounds
elsewhere; a fault does not shrink with the format's precision.
"""

import contextlib
import logging
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from transformers import PreTrainedModel

from notewriter.ground.errors import UserError
from notewriter.training.sharing.prefix_sharing import REMEDY, stacked

logger = logging.getLogger(__name__)

PAIRS = 8
"""Pairs that each process scores: with completions of a few tokens, fewer would make the averages noisy."""

FACTOR = 2
"""A difference of more than this multiple of the effect of rounding is a fault.

With SmolLM2-135M, sharing made 0.7 of that effect in float32 (3.1e-6 of 4.7e-6 nats per token) and 0.5 in bfloat16
(0.025 of 0.054 under autocast, 0.031 of 0.062 with bfloat16 weights); in six samples of only 22 to 32 tokens, 0.5 to
1.03 under autocast.
"""

FLOOR = 1e-4
"""Nats per token that are never a fault: where logits are close to zero, rounding has hardly any effect."""


def choose(lengths: Sequence[int], processes: int, process: int) -> list[int]:
    """The rows that a process scores; together the processes cover all lengths evenly, including the longest.

    Every process gets the same number, because the processes of a sharded model compute in lockstep.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    count = PAIRS * processes
    return [order[(len(order) - 1) * number // (count - 1)] for number in range(process, count, processes)]


def check(
    wrapped: torch.nn.Module,
    model: PreTrainedModel,
    batches: Sequence[Mapping[str, torch.Tensor]],
    accelerator: Accelerator,
) -> None:
    """Score pairs shared and stacked, on all processes together, and log the difference.

    Args:
        wrapped: the model as the run calls it.
        model: the same model unwrapped, changed by `share_prefixes`.
        batches: pairs as TRL's collator stacks them, on the run's device.

    Raises:
        UserError: sharing fails where stacking does not, or changes scores by more than the number format
            explains; raised in all processes.
    """
    name = model.config.model_type
    training = wrapped.training
    wrapped.eval()
    with torch.no_grad(), accelerator.autocast():
        precision = number_format(model, accelerator.device)
        # Half a unit in the last place of one nat is the resolution of the format.
        bound = max(FLOOR, torch.finfo(precision).eps / 2)
        plain = [_stacked_score(wrapped, model, batch) for batch in batches]
        shared = [_shared_score(wrapped, batch, name) for batch in batches]
        difference, tokens = _difference(shared, plain, accelerator)
        if not difference <= bound:
            with perturbed(model, torch.finfo(precision).eps):
                again = [_stacked_score(wrapped, model, batch) for batch in batches]
            rounding, _ = _difference(again, plain, accelerator)
            bound = max(FACTOR * rounding, bound)
    wrapped.train(training)
    form = str(precision).removeprefix("torch.")
    # `not <=`, so that NaN is a fault.
    if not difference <= bound:
        raise UserError(
            f"{name}: with shared prompts a token's log-probability differs by {difference:.1e} on average, where "
            f"{form} explains {bound:.1e}; {REMEDY}"
        )
    logger.info(
        "shared prompts score as stacked ones: a token's log-probability differs by %.1e on average over %d tokens, "
        "where %s explains %.1e",
        difference,
        tokens,
        form,
        bound,
    )


def _stacked_score(wrapped: torch.nn.Module, model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    # Uncompiled: no step needs a compiled stack.
    with stacked(model), torch.compiler.set_stance("force_eager"):
        return score(wrapped, batch)


def _shared_score(wrapped: torch.nn.Module, batch: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    try:
        return score(wrapped, batch)
    except (UserError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = textwrap.shorten(str(error), 300)
        raise UserError(f"{name}: scoring shared prompts fails ({type(error).__name__}: {reason}); {REMEDY}") from error


def _difference(
    scores: Sequence[torch.Tensor], others: Sequence[torch.Tensor], accelerator: Accelerator
) -> tuple[float, int]:
    """The mean absolute difference of the scores of all processes' tokens, and the number of tokens."""
    differences = sum((each - other).abs().double().sum().item() for each, other in zip(scores, others, strict=True))
    sums = torch.tensor([differences, sum(map(torch.numel, others))], device=accelerator.device)
    difference, tokens = accelerator.reduce(sums, reduction="sum").tolist()
    return difference / tokens, round(tokens)


def score(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The log-probability of each trained token, as TRL computes it."""
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    trained = batch["completion_mask"].bool()
    labels = batch["input_ids"].masked_fill(~trained, -100)
    scores: torch.Tensor = model(**inputs, labels=labels, use_cache=False, fused_lm_head=True).log_probs
    # As in TRL: some adapters put tokens of their own before the prompt.
    return scores[:, 1 - trained.shape[1] :][trained[:, 1:]].float()


def number_format(model: PreTrainedModel, device: torch.device) -> torch.dtype:
    """The coarsest format of a model's computation: that of its weights or of autocast."""
    formats = [model.dtype]
    if torch.is_autocast_enabled(device.type):
        formats.append(torch.get_autocast_dtype(device.type))
    return max(formats, key=lambda each: torch.finfo(each).eps)


@contextlib.contextmanager
def perturbed(model: PreTrainedModel, size: float) -> Iterator[None]:
    """Scale a model's embeddings up and down in turn by this fraction; nothing is random, so no generator advances."""

    def perturb(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        signs = 1 - 2 * (torch.arange(output.shape[-1], device=output.device) % 2)
        return output * (1 + size * signs).to(output.dtype)

    handle = model.get_input_embeddings().register_forward_hook(perturb)
    try:
        yield
    finally:
        handle.remove()
