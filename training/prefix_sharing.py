"""DPO forwards that compute a pair's prompt once instead of twice.

TRL scores a batch of pairs as a stack `[chosen; rejected]`, in which every prompt stands twice and every row is padded
to the longest. Here the whole batch becomes one row, `prompt | chosen | rejected | prompt | chosen | ...`, in which a
completion sees its prompt and itself. TRL's own head scores the positions that predict a completion, and its scores
go back into the stack's shape, so that the loss and everything after it stay TRL's.

With a prompt of P and completions of C tokens the limit of the speed-up is 2(P + C) / (P + 2C). No mask of
length x length is made: a prompt's attention is plain causal attention, a pair's completions have a mask of their own
rows alone, and half-precision attention on CUDA is one FlashAttention call for the whole row.
"""

import functools
import inspect
import types
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from trl.trainer.utils import FusedCausalLMOutput

from notewriter.errors import UserError

REMEDY = "set prefix_sharing: false"

ATTENTION = "shared_prompts"
"""The name under which transformers knows the attention below."""

FIELDS = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
"""What TRL's fused head may say of a token."""


def share_prefixes(model: PreTrainedModel, max_length: int | None = None) -> None:
    """Change a model that has TRL's fused head so that its scoring of stacked pairs shares their prompts.

    All other calls of the model, generation for one, stay as they are; so does a model that shares already.
    `max_length` is the length in tokens that no prompt with its completion exceeds: attention that looks back over a
    window at least as long can be shared.

    Raises:
        UserError: the model's attention or the installed TRL does not fit; says what to do.
    """
    if model.config._attn_implementation == ATTENTION:
        return
    if reason := _obstacle(model, max_length):
        raise UserError(f"{model.config.model_type}: {reason}; {REMEDY}")
    original = model.forward

    @functools.wraps(original)
    def forward(self: PreTrainedModel, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        if not fused_lm_head:
            return original(*args, **kwargs)
        return _score_pairs(original, **kwargs)

    model.forward = types.MethodType(forward, model)
    model.set_attn_implementation(ATTENTION)
    model.base_model.register_forward_hook(_keep_predicting, with_kwargs=True)


def _obstacle(model: PreTrainedModel, max_length: int | None) -> str:
    """Why this model cannot share prompts, in words; empty where it can."""
    # accelerate, which may have wrapped the forward by now, keeps the one that it wrapped.
    head = inspect.signature(getattr(model, "_original_forward", model.forward), follow_wrapped=False).parameters
    if not {"fused_lm_head", "shift_labels"} <= head.keys():
        return "this version of TRL gives it no fused head that takes shift_labels, as TRL 1.16 does"
    configuration = model.config.get_text_config()
    if configuration is not model.config:
        return "reads more than text"
    if not (model._supports_sdpa and model._supports_attention_backend):
        return "computes attention in a way of its own"
    if getattr(configuration, "attn_logit_softcapping", None):
        return "caps its attention scores (attn_logit_softcapping)"
    kinds = set(getattr(configuration, "layer_types", None) or ["full_attention"])
    window = getattr(configuration, "sliding_window", None)
    if window:
        kinds.add("sliding_attention")
        if max_length is not None and max_length <= window:
            kinds.discard("sliding_attention")
    if others := kinds - {"full_attention"}:
        seen = f" over {window} tokens (a max_length of at most that can be shared)" if window else ""
        return f"has {', '.join(sorted(others))}{seen}"
    return ""


def _score_pairs(
    forward: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **kwargs: Any
) -> FusedCausalLMOutput:
    """What TRL's fused head returns for a stack of pairs; every field has the shape (2 x pairs, length - 1)."""
    if kwargs.get("output_router_logits"):
        raise UserError(f"the router's loss would count a shared prompt once; set router_aux_loss_coef: 0, or {REMEDY}")
    pairs, length = len(input_ids) // 2, input_ids.shape[1]
    ends = attention_mask.sum(1)
    starts = (labels != -100).int().argmax(1)
    column = torch.arange(length, device=input_ids.device)
    in_prompt = column < starts[:pairs, None]
    shared = (starts[:pairs] == starts[pairs:]).all() & (starts > 0).all()
    shared &= ~((input_ids[:pairs] != input_ids[pairs:]) & in_prompt).any()
    shared &= (attention_mask.bool() == (column < ends[:, None])).all()
    if not shared:
        raise UserError(f"a chosen and a rejected do not begin with the same prompt; {REMEDY}")

    layout, rows, columns, places = _lay_out(starts[:pairs].tolist(), ends.tolist(), length, input_ids.device)
    mask = labels[:, 1:] != -100
    scored = forward(
        input_ids=input_ids[rows, columns][None],
        position_ids=columns[None],
        # A mask of four dimensions is handed on as it is: none is made.
        attention_mask=torch.empty(1, 1, 0, 0, device=input_ids.device),
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
    return FusedCausalLMOutput(loss=scored.loss, label_mask=mask, **fields)


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
        the stack, the place in the row of each of its tokens. The last token of a completion predicts nothing and is
        left out.
    """
    pairs = len(prompts)
    lengths, rows, columns = [], [], []
    places = torch.zeros(2 * pairs, length, dtype=torch.long)
    place = 0
    for pair, prompt in enumerate(prompts):
        parts = [(pair, 0, prompt), (pair, prompt, ends[pair] - 1), (pairs + pair, prompt, ends[pairs + pair] - 1)]
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
    """A row of pairs: the tokens of each one's prompt, chosen and rejected, in this order, without padding."""

    lengths: list[tuple[int, int, int]]
    device: torch.device

    @functools.cached_property
    def sizes(self) -> list[int]:
        """The tokens of each pair."""
        return [sum(each) for each in self.lengths]

    @functools.cached_property
    def masks(self) -> list[torch.Tensor]:
        """For each pair, which of its tokens (columns) each token of its completions (rows) sees."""
        masks = []
        for (prompt, chosen, _), size in zip(self.lengths, self.sizes, strict=True):
            sees = torch.ones(size - prompt, size, dtype=torch.bool, device=self.device).tril(prompt)
            sees[chosen:, prompt : prompt + chosen] = False
            masks.append(sees)
        return masks

    @functools.cached_property
    def sequences(self) -> dict[str, Any]:
        """The same for FlashAttention: every part is a sequence of queries, whose keys are those before it and its own.

        `keys` (the index of each sequence's keys in the row, one after the other) is for the caller; the rest are
        `varlen_attn`'s arguments, whose causal attention lines up the ends of queries and keys.
        """
        keys, queries_each, keys_each = [], [], []
        start = 0
        for prompt, chosen, rejected in self.lengths:
            shared = torch.arange(start, start + prompt)
            start += prompt
            keys.append(shared)
            for part in (chosen, rejected):
                keys += [shared, torch.arange(start, start + part)]
                start += part
            queries_each += [prompt, chosen, rejected]
            keys_each += [prompt, prompt + chosen, prompt + rejected]
        return {
            "keys": torch.cat(keys).to(self.device),
            "cu_seq_q": _offsets(queries_each).to(self.device),
            "cu_seq_k": _offsets(keys_each).to(self.device),
            "max_q": max(queries_each),
            "max_k": max(keys_each),
        }


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
        if attention_mask is not None and attention_mask.numel() == 0:
            raise UserError(f"the model keeps the layout of shared prompts from its attention; {REMEDY}")
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output, None
    if not kwargs.get("dropout") and _has_flash_attention(query, value):
        return _flash_attention(query, key, value, layout, kwargs.get("scaling")), None
    parts = []
    # The gradient of a slice fills the whole of what it is cut from with zeros, that of a split does not.
    pairs = zip(*(each.split(layout.sizes, dim=2) for each in (query, key, value)), strict=True)
    for (prompt, _, _), sees, (queries, keys, values) in zip(layout.lengths, layout.masks, pairs, strict=True):
        shared = (each[:, :, :prompt] for each in (queries, keys, values))
        parts.append(sdpa_attention_forward(module, *shared, None, **kwargs)[0])
        if len(sees):
            parts.append(sdpa_attention_forward(module, queries[:, :, prompt:], keys, values, sees, **kwargs)[0])
    return torch.cat(parts, dim=1), None


def _has_flash_attention(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether PyTorch's FlashAttention takes such tensors."""
    half = query.dtype in (torch.float16, torch.bfloat16)
    return query.is_cuda and half and query.shape[-1] == value.shape[-1] <= 256


def _flash_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scaling: float | None
) -> torch.Tensor:
    """A shared row's attention in one call of the FlashAttention that PyTorch brings; for CUDA."""
    sequences = dict(layout.sequences)
    index = sequences.pop("keys")
    output = varlen_attn(
        query[0].transpose(0, 1),
        key[0, :, index].transpose(0, 1),
        value[0, :, index].transpose(0, 1),
        **sequences,
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return output[None]


def _keep_predicting(backbone: torch.nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Keep, of a shared row, the hidden states that predict a completion, in the order of the stack's labels."""
    if (predicting := kwargs.get("predicting")) is not None:
        output.last_hidden_state = output.last_hidden_state[:, predicting]
    return output


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
