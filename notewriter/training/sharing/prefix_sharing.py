"""DPO forwards that compute a pair's prompt once instead of twice.

TRL scores a batch of pairs as a stack `[chosen; rejected]`, in which every prompt occurs twice and every row is padded
to the longest. Here the whole batch becomes one row, `prompt | chosen | rejected | prompt | chosen | ...`, in which a
completion sees its prompt and itself. TRL's own head scores the positions that predict a completion, and its scores
go back into the stack's shape, so that the loss and everything after it stay TRL's.

With a prompt of P and completions of C tokens the limit of the speed-up is 2(P + C) / (P + 2C). To attention, a pair
is two causal sequences, its prompt with the chosen and its prompt with the rejected; only the second needs a copy, of
the prompt's keys and values. Layers with a sliding window see as far back as in the stack, because a rejected follows
its prompt in both position and attention. Half-precision attention on CUDA is one FlashAttention call for the row.
"""

import contextlib
import functools
import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from trl.trainer.utils import FusedCausalLMOutput

from notewriter.ground.errors import UserError

REMEDY = "set prefix_sharing: false"

ATTENTION = "shared_prompts"
"""The name of the attention below in transformers."""

GROUPED_HEADS = "enable_gqa" in inspect.signature(varlen_attn).parameters
"""Whether PyTorch's FlashAttention takes fewer heads of keys than of queries, as it does from torch 2.12 on."""

FIELDS = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
"""The per-token outputs of TRL's fused head."""


def share_prefixes(model: PreTrainedModel) -> None:
    """Change a model with TRL's fused head so that its scoring of stacked pairs shares their prompts.

    All other calls of the model, such as generation, are unchanged; so is a model that shares prompts already.

    Raises:
        UserError: the model's attention or the installed TRL does not support it; names the remedy.
    """
    if model.config.get_text_config()._attn_implementation == ATTENTION:
        return
    if reason := _obstacle(model):
        raise UserError(f"{model.config.model_type}: {reason}; {REMEDY}")
    original = model.forward

    @functools.wraps(original)
    def forward(self: PreTrainedModel, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        if not fused_lm_head or self.config.get_text_config()._attn_implementation != ATTENTION:
            return original(*args, fused_lm_head=fused_lm_head, **kwargs)
        return _score_pairs(original, **kwargs)

    model.own_attention = model.config.get_text_config()._attn_implementation
    model.forward = types.MethodType(forward, model)
    model.set_attn_implementation(ATTENTION)
    model.base_model.register_forward_hook(_keep_predicting, with_kwargs=True)


@contextlib.contextmanager
def stacked(model: PreTrainedModel) -> Iterator[None]:
    """Have a model that shares prompts score stacked pairs as TRL does, with its original attention."""
    model.set_attn_implementation(cast(str, model.own_attention))
    try:
        yield
    finally:
        model.set_attn_implementation(ATTENTION)


def _obstacle(model: PreTrainedModel) -> str:
    """Why this model cannot share prompts; empty if it can."""
    configuration = model.config.get_text_config()
    kinds = set(getattr(configuration, "layer_types", None) or ["full_attention"])
    if "linear_attention" in kinds:
        return "has linear attention, whose state after the prompt would have to reach both completions"
    if not (model._supports_attention_backend and model._supports_sdpa):
        return "has its own implementation of attention"
    if not model._supports_flash_attn:
        return "has its own attention masks"
    if getattr(configuration, "attn_logit_softcapping", None):
        return "caps attention scores, which PyTorch's attention does not"
    if others := kinds - {"full_attention", "sliding_attention"}:
        return f"has {', '.join(sorted(others))}"
    if model._is_stateful:
        return "has recurrent layers"
    if not getattr(configuration, "is_causal", True):
        return "attends to later tokens too"
    if len(set(getattr(model, "hf_device_map", {}).values())) > 1:
        return "is split over several devices (device_map)"
    return ""


def _score_pairs(
    forward: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **kwargs: Any
) -> FusedCausalLMOutput:
    """What TRL's fused head returns for a stack of pairs; every field has the shape (2 x pairs, length - 1)."""
    pairs, length = len(input_ids) // 2, input_ids.shape[1]
    ends = attention_mask.sum(1)
    starts = (labels != -100).int().argmax(1)
    column = torch.arange(length, device=input_ids.device)
    in_prompt = column < starts[:pairs, None]
    shared = (starts[:pairs] == starts[pairs:]).all() & (starts > 0).all()
    shared &= ~((input_ids[:pairs] != input_ids[pairs:]) & in_prompt).any()
    shared &= (attention_mask.bool() == (column < ends[:, None])).all()
    if not shared:
        raise UserError(f"chosen and rejected do not begin with the same prompt; {REMEDY}")

    layout, rows, columns, places = _lay_out(starts[:pairs].tolist(), ends.tolist(), length, input_ids.device)
    mask = labels[:, 1:] != -100
    scored = forward(
        input_ids=input_ids[rows, columns][None],
        position_ids=columns[None],
        # A four-dimensional mask is passed on unchanged: none is built. TRL weights the tokens by it in the router loss
        # of a mixture of experts; to attention its shape is wrong, so that a model that uses it fails.
        attention_mask=layout.occurrences.view(1, -1, 1, 1),
        shift_labels=labels[:, 1:][mask][None],
        fused_lm_head=True,
        layout=layout,
        predicting=places[:, :-1][mask],
        **kwargs,
    )
    fields = {
        name: values.new_zeros(mask.shape).masked_scatter(mask, values)
        for name in FIELDS
        if (values := getattr(scored, name)) is not None
    }
    return FusedCausalLMOutput(loss=scored.loss, aux_loss=scored.aux_loss, label_mask=mask, **fields)


def _lay_out(
    prompts: list[int], ends: list[int], length: int, device: torch.device
) -> tuple["Layout", torch.Tensor, torch.Tensor, torch.Tensor]:
    """One row for a stack of pairs.

    Args:
        prompts: the tokens of each pair's prompt.
        ends: the tokens of each row of the stack, without its padding.
        length: the columns of the stack.

    Returns:
        The layout; the row and the column in the stack that each token of the row comes from; and, of the shape of
        the stack, the place in the row of each of its tokens.
    """
    pairs = len(prompts)
    lengths, rows, columns = [], [], []
    places = torch.zeros(2 * pairs, length, dtype=torch.long)
    place = 0
    for pair, prompt in enumerate(prompts):
        parts = [(pair, 0, prompt), (pair, prompt, ends[pair]), (pairs + pair, prompt, ends[pairs + pair])]
        for row, start, end in parts:
            rows.append(torch.full((end - start,), row))
            columns.append(torch.arange(start, end))
            places[row, start:end] = torch.arange(place, place + end - start)
            place += end - start
        places[pairs + pair, :prompt] = places[pair, :prompt]
        prompt_end, chosen_end, rejected_end = (end - start for _, start, end in parts)
        lengths.append((prompt_end, chosen_end, rejected_end))
    return (
        Layout(lengths, device),
        torch.cat(rows).to(device),
        torch.cat(columns).to(device),
        places.to(device),
    )


@dataclass(frozen=True)
class Layout:
    """A row of pairs: the tokens of each one's prompt, chosen and rejected, in this order, without padding.

    To attention, a pair is two causal sequences: the queries of prompt and chosen, which see their own keys and
    values, and those of the rejected, which see the prompt's and their own. In both, the last query is the last key.
    """

    lengths: list[tuple[int, int, int]]
    device: torch.device
    masks: dict[tuple[int, int, int], torch.Tensor] = field(default_factory=dict)
    """Masks that were made, by queries, keys and window: the layers share them."""

    @functools.cached_property
    def queries(self) -> list[int]:
        """The tokens of each sequence; together they are the row."""
        return [tokens for prompt, chosen, rejected in self.lengths for tokens in (prompt + chosen, rejected)]

    @functools.cached_property
    def occurrences(self) -> torch.Tensor:
        """How often each token of the row stands in the stack: a prompt twice, a completion once."""
        tokens = torch.tensor([tokens for pair in self.lengths for tokens in pair])
        return torch.tensor([2.0, 1.0, 1.0]).repeat(len(self.lengths)).repeat_interleave(tokens).to(self.device)

    @functools.cached_property
    def sequences(self) -> dict[str, Any]:
        """Where the sequences begin and end, as arguments of `varlen_attn`."""
        keys = [prompt + tokens for prompt, *completions in self.lengths for tokens in completions]
        return {
            "cu_seq_q": _offsets(self.queries).to(self.device),
            "cu_seq_k": _offsets(keys).to(self.device),
            "max_q": max(self.queries),
            "max_k": max(keys),
        }

    def with_prompts(self, states: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """A row's keys or values, sequence by sequence: the prompt's and the completion's."""
        # A slice would fill the whole of what it is cut from with zeros in the backward; a split does not.
        parts = states.split_with_sizes([tokens for pair in self.lengths for tokens in pair], dim=2)
        pairs = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        return [(prompt, completion) for prompt, *completions in pairs for completion in completions]

    def mask(self, queries: int, keys: int, window: int | None) -> torch.Tensor | None:
        """Which of a sequence's keys its last queries see, for PyTorch's attention; None is plain causal attention."""
        if window is None or window >= keys:
            if queries == keys:
                return None
            if self.device.type == "cuda":
                # Its kernels know this form; elsewhere PyTorch would make a mask of it in every layer.
                return causal_lower_right(queries, keys)
        window = keys if window is None else min(window, keys)
        sizes = (queries, keys, window)
        if sizes not in self.masks:
            sees = torch.ones(queries, keys, dtype=torch.bool, device=self.device)
            self.masks[sizes] = sees.tril(keys - queries).triu(keys - queries - window + 1)
        return self.masks[sizes]


def _offsets(lengths: list[int]) -> torch.Tensor:
    """Where each of several sequences begins, and where the last one ends."""
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    layout: Layout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention of a shared row, and PyTorch's own attention for everything else.

    Query, key and value have the shape (1, heads, length, head size), the result (1, length, heads, head size).
    """
    if layout is None:
        # A row has at least two tokens.
        if attention_mask is not None and attention_mask.shape[2] < query.shape[2]:
            raise UserError(f"the model does not pass the layout of shared prompts on to its attention; {REMEDY}")
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output, None
    if torch.is_autocast_enabled(query.device.type):
        # Rotary embeddings leave queries and keys in float32, where the weights are.
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    window = kwargs.get("sliding_window")
    declared = getattr(module.config, "sliding_window", None)
    if "sliding_window" not in kwargs and declared and declared < layout.sequences["max_k"]:
        raise UserError(f"the model does not pass its window of {declared} tokens on to its attention; {REMEDY}")
    if not kwargs.get("dropout") and _has_flash_attention(query, key, value):
        return _flash_attention(query, key, value, layout, window, kwargs.get("scaling")), None
    outputs = []
    sequences = zip(
        query.split_with_sizes(layout.queries, dim=2), layout.with_prompts(key), layout.with_prompts(value), strict=True
    )
    for queries, *copied in sequences:
        keys, values = (torch.cat(parts, dim=2) for parts in copied)
        mask = layout.mask(queries.shape[2], keys.shape[2], window)
        outputs.append(sdpa_attention_forward(module, queries, keys, values, mask, **kwargs)[0])
    return torch.cat(outputs, dim=1), None


def _has_flash_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether PyTorch's FlashAttention takes such tensors on this device.

    PyTorch checks the device (compute capability 8.0 or above), types and head sizes (equal, at most 256). It would pad
    a head size that is no multiple of 8; `varlen_attn` does not.
    """
    if not GROUPED_HEADS:
        return False
    grouped = query.shape[1] != key.shape[1]
    return query.shape[-1] % 8 == 0 and can_use_flash_attention(SDPAParams(query, key, value, None, 0.0, True, grouped))


def _flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Layout,
    window: int | None,
    scaling: float | None,
) -> torch.Tensor:
    """A shared row's attention in one call of the FlashAttention that PyTorch brings; for CUDA."""
    keys, values = (
        torch.cat([part for parts in layout.with_prompts(states) for part in parts], dim=2) for states in (key, value)
    )
    output = varlen_attn(
        query[0].transpose(0, 1),
        keys[0].transpose(0, 1),
        values[0].transpose(0, 1),
        **layout.sequences,
        scale=scaling,
        # How many tokens it sees before its own, and after it; a model's window counts a token's own.
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return cast(torch.Tensor, output)[None]


def _keep_predicting(backbone: torch.nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Keep, of a shared row, the hidden states that predict a completion, in the order of the stack's labels."""
    if (predicting := kwargs.get("predicting")) is not None:
        output.last_hidden_state = output.last_hidden_state[:, predicting]
    return output


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
