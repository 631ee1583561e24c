"""Which attention is computed: written out, transformers' own, the best for TRL, and what shared prompts called."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.utils import is_flash_attn_2_available

ROWS = 1024
"""Queries whose scores the exact attention holds at a time."""


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
    **_: object,
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


def own_attention(model: PreTrainedModel) -> str:
    """The attention that transformers computes this model right with: SDPA knows neither sinks nor soft caps."""
    capped = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    return "sdpa" if model._supports_sdpa and not capped else "eager"


@contextlib.contextmanager
def attention_calls() -> Iterator[set[str]]:
    """The names of the attention functions of `training.prefix_sharing` that are called meanwhile."""
    from training import prefix_sharing

    called: set[str] = set()

    def noting(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            called.add(name.strip("_"))
            return function(*arguments, **options)

        return call

    functions = {
        name: getattr(prefix_sharing, name) for name in ("_flash_attention", "_flex_attention", "_explicit_attention")
    }
    try:
        for name, function in functions.items():
            setattr(prefix_sharing, name, noting(name, function))
        yield called
    finally:
        for name, function in functions.items():
            setattr(prefix_sharing, name, function)


def best_attention() -> str:
    """The best attention that TRL's DPOTrainer can be given here: flash-attn's where it is installed."""
    return "flash_attention_2" if is_flash_attn_2_available() else "sdpa"
