"""DPO forwards that compute a pair's prompt once instead of twice.

TRL scores a batch of pairs as a stack `[chosen; rejected]`, in which every prompt occurs twice and every row is padded
to the longest. Here the whole batch becomes one row, `prompt | chosen | rejected | prompt | chosen | ...`, in which a
completion sees its prompt and itself. Pairs that follow each other in a batch and have the same prompt share it too,
and their chosen where it is the same: `prompt | chosen | rejected | rejected | ...`. TRL's own head scores the
positions that predict a completion, and its scores go back into the stack's shape, so that the loss and everything
after it stay TRL's.

With a prompt of P and completions of C tokens the speed-up is at most 2(P + C) / (P + 2C). For n pairs with the same
prompt and chosen it is at most 2n(P + C) / (P + (n + 1)C). To attention, a prompt with its first completion is one
causal sequence, and with each further completion another; only the further ones need a copy, of the prompt's keys and
values. Layers with a sliding window see as far back as in the stack, because each completion follows its prompt in both
position and attention. Half-precision attention on CUDA is one FlashAttention call for the row.

In the last layer a prompt's tokens give only keys and values, except its last token, which predicts. Queries,
attention, the output's projection and the MLP are computed for that token and for the completions
(`_compute_completions_alone`).
"""

import contextlib
import functools
import inspect
import itertools
import types
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.varlen import varlen_attn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from trl.trainer.utils import FusedCausalLMOutput

from notewriter.ground.errors import UserError
from notewriter.training.model.trl_functions import all_labelled

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
    _compute_completions_alone(model)


@contextlib.contextmanager
def stacked(model: PreTrainedModel) -> Iterator[None]:
    """Make a model that shares prompts score stacked pairs as TRL does, with its original attention."""
    model.set_attn_implementation(cast(str, model.own_attention))
    try:
        yield
    finally:
        model.set_attn_implementation(ATTENTION)


def _obstacle(model: PreTrainedModel) -> str:
    """The reason why this model cannot share prompts; empty if it can."""
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


PROJECTIONS = ("q_proj", "o_proj", "out_proj", "dense", "c_proj")
"""Names of the query projection and the output projection of an attention layer.

Where one matrix makes queries, keys and values (GPT-2, Phi-3), it is computed whole.
"""


def _compute_completions_alone(model: PreTrainedModel) -> None:
    """Make the last layer compute, beside all keys and values, only the positions of a row that predict a completion.

    The other tokens' outputs, which nobody reads, are then those of zeros. In a mixture of experts the layer stays
    whole: the router's loss reads all tokens.
    """
    decoder = model.get_decoder()
    stacks = (each for each in decoder.children() if isinstance(each, torch.nn.ModuleList))
    layers = next(stacks, None)
    count = model.config.get_text_config().num_hidden_layers
    routed = "router_logits" in (getattr(decoder, "_can_record_outputs", None) or {})
    if routed or layers is None or len(layers) < count:
        return
    layer = layers[count - 1]
    shared: list[Layout] = []
    """The layout of the row at hand; empty outside of the layer and of shared rows."""

    def enter(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        shared.clear()
        if (layout := kwargs.get("layout")) is None:
            return None
        shared.append(layout.of_completions)
        return args, kwargs | {"layout": layout.of_completions}

    def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
        shared.clear()

    def narrow(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> Any:
        return (args[0].index_select(1, shared[0].asking), *args[1:]) if shared else None

    def widen(module: torch.nn.Module, args: Any, output: torch.Tensor) -> Any:
        return shared[0].widened(output) if shared else None

    layer.register_forward_pre_hook(enter, with_kwargs=True)
    layer.register_forward_hook(leave, always_call=True)
    attention = getattr(layer, "self_attn", None) or getattr(layer, "attn", None) or torch.nn.Module()
    for block, names in ((attention, PROJECTIONS), (layer, ("mlp",))):
        for part in (part for name, part in block.named_children() if name in names):
            part.register_forward_pre_hook(narrow)
            part.register_forward_hook(widen)


def _score_pairs(
    forward: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **kwargs: Any
) -> FusedCausalLMOutput:
    """The result of TRL's fused head for a stack of pairs; every field has the shape (2 x pairs, length - 1)."""
    row = _row_of(input_ids, attention_mask, labels)
    with all_labelled():
        scored = forward(
            input_ids=input_ids.reshape(-1).index_select(0, row.tokens)[None],
            position_ids=row.positions[None],
            # A four-dimensional mask is passed on unchanged: none is built. TRL weights the tokens by it in the router
            # loss of a mixture of experts; to attention its shape is wrong, so that a model that uses it fails.
            attention_mask=row.occurrences.view(1, -1, 1, 1),
            shift_labels=labels[:, 1:].reshape(-1).index_select(0, row.scored)[None],
            fused_lm_head=True,
            layout=row.layout,
            predicting=row.predicting,
            **kwargs,
        )
    mask = labels[:, 1:] != -100
    fields = {
        name: values.new_zeros(mask.numel()).index_copy(0, row.scored, values[0]).view(mask.shape)
        for name in FIELDS
        if (values := getattr(scored, name)) is not None
    }
    return FusedCausalLMOutput(loss=scored.loss, aux_loss=scored.aux_loss, label_mask=mask, **fields)


@dataclass(frozen=True)
class Row:
    """A stack of pairs as one row; each tensor has one dimension, and is on the stack's device."""

    layout: "Layout"
    tokens: torch.Tensor
    """The place in the flattened stack of each token of the row."""
    positions: torch.Tensor
    """The position of each token in its row of the stack."""
    occurrences: torch.Tensor
    """How often each token stands in the stack, as a float."""
    predicting: torch.Tensor
    """The places in the row that predict a label, in the order of the stack."""
    scored: torch.Tensor
    """The places of these labels in the flattened stack, whose rows have lost their first token."""


_rows: MutableMapping[torch.Tensor, tuple[torch.Tensor, Row]] = WeakTensorKeyDictionary()
"""The rows of the stacks at hand and their ids, by their labels: a policy and its reference score the same."""


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _row_of(input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> Row:
    """The row of a stack of pairs; one copy from its device, the only wait for it, and one back.

    Raises:
        UserError: the sides of a pair do not begin with the same prompt.
    """
    ids, row = _rows.get(labels, (None, None))
    if row is None or ids is not input_ids:
        stack = torch.stack([input_ids, attention_mask.to(input_ids), labels.to(input_ids)])
        row = _lay_out(stack.cpu(), input_ids.device)
        _rows[labels] = input_ids, row
    return row


def repeated(chosen: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each pair whether its prompt, and whether prompt and chosen, are those of the pair before it in the batch.

    Args:
        chosen: the ids of prompt and chosen, of shape (pairs, length).
        starts: the tokens of each pair's prompt, of shape (pairs).
        ends: the tokens of its prompt and chosen, of shape (pairs).
    """
    column = torch.arange(chosen.shape[1], device=chosen.device)
    differs = chosen[1:] != chosen[:-1]

    def same(lengths: torch.Tensor) -> torch.Tensor:
        return (lengths[1:] == lengths[:-1]) & ~(differs & (column < lengths[1:, None])).any(1)

    prompts = same(starts)
    first = prompts.new_zeros(1)
    return torch.cat([first, prompts]), torch.cat([first, prompts & same(ends)])


def _lay_out(stack: torch.Tensor, device: torch.device) -> Row:
    """The row on a device of a stack of pairs: their ids, attention mask and labels, in the machine's memory.

    Raises:
        UserError: as `_row_of`.
    """
    ids, mask, labels = stack
    pairs, length = len(ids) // 2, ids.shape[1]
    column = torch.arange(length)
    prompts, ends = (labels != -100).int().argmax(1), mask.sum(1)
    shared = (prompts[:pairs] == prompts[pairs:]).all() & (prompts > 0).all()
    shared &= ~((ids[:pairs] != ids[pairs:]) & (column < prompts[:pairs, None])).any()
    shared &= (mask.bool() == (column < ends[:, None])).all()
    if not shared:
        raise UserError(f"chosen and rejected do not begin with the same prompt; {REMEDY}")
    repeats = torch.stack(repeated(ids[:pairs], prompts[:pairs], ends[:pairs]), dim=1).tolist()

    groups: list[list[int]] = []
    tokens = []
    # Of each token of the stack the place in the row.
    places = torch.zeros(2 * pairs, length, dtype=torch.long)
    place = 0

    def add(row: int, start: int, end: int) -> None:
        nonlocal place
        tokens.append(torch.arange(row * length + start, row * length + end))
        places[row, start:end] = torch.arange(place, place + end - start)
        groups[-1].append(end - start)
        place += end - start

    lengths = zip(prompts[:pairs].tolist(), ends[:pairs].tolist(), ends[pairs:].tolist(), repeats, strict=True)
    for pair, (prompt, end, end_rejected, (same_prompt, same_chosen)) in enumerate(lengths):
        chosen, rejected = pair, pairs + pair
        if same_prompt:
            places[chosen, :prompt] = places[chosen - 1, :prompt]
        else:
            groups.append([])
            add(chosen, 0, prompt)
        if same_chosen:
            places[chosen] = places[chosen - 1]
        else:
            add(chosen, prompt, end)
        places[rejected, :prompt] = places[chosen, :prompt]
        add(rejected, prompt, end_rejected)
    labelled = labels[:, 1:] != -100
    integers = {
        "tokens": torch.cat(tokens),
        "positions": torch.cat(tokens) % length,
        "occurrences": places[column < ends[:, None]].bincount(),
        "predicting": places[:, :-1][labelled],
        "scored": labelled.reshape(-1).nonzero()[:, 0],
        **_bounds(groups),
    }
    whole = torch.cat([*integers.values()])
    if device.type == "cuda":
        # So that the copy waits for nothing.
        whole = whole.pin_memory()
    parts = whole.to(device, non_blocking=True).split([len(part) for part in integers.values()])
    copied = dict(zip(integers, parts, strict=True))
    own = {name: copied.pop(name) for name in ("tokens", "positions", "predicting", "scored")}
    occurrences = copied.pop("occurrences").float()
    return Row(Layout(groups, device, bounds=copied), occurrences=occurrences, **own)


def _bounds(groups: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """The positions in a row that attention needs beside lengths: those with queries, and the bounds of sequences."""
    ends = itertools.accumulate(map(sum, groups))
    asking = [torch.arange(end - sum(group) + group[0] - 1, end) for end, group in zip(ends, groups, strict=True)]
    keys = [prompt + tokens for prompt, *completions in groups for tokens in completions]
    starts = {"queries": _asking(groups, False), "few queries": _asking(groups, True), "keys": keys}
    return {"asking": torch.cat(asking)} | {
        name: torch.tensor([0, *lengths]).cumsum(0) for name, lengths in starts.items()
    }


@dataclass(frozen=True)
class Layout:
    """A row of pairs, without padding: of each prompt its tokens, then those of each completion that follows it.

    To attention, a prompt and its completions are as many causal sequences as there are completions: the queries of
    prompt and first completion, which see their own keys and values, and those of each further completion, which see
    the prompt's and their own. In all, the last query is the last key.
    """

    lengths: Sequence[Sequence[int]]
    device: torch.device
    masks: dict[tuple[int, int, int], torch.Tensor] = field(default_factory=dict)
    """Masks that were made, by queries, keys and window: the layers share them."""
    narrow: bool = False
    """Whether only the last token of a prompt, which predicts, has a query."""
    bounds: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Those of `_bounds`, on the device."""

    @functools.cached_property
    def queries(self) -> list[int]:
        """The number of queries of each sequence; together they are the row, or `asking`."""
        return _asking(self.lengths, self.narrow)

    @functools.cached_property
    def of_completions(self) -> "Layout":
        """The same row with queries at the prompts' last tokens and at the completions alone."""
        return replace(self, narrow=True)

    @property
    def asking(self) -> torch.Tensor:
        """The positions in the row of tokens with queries."""
        return self.bounds["asking"]

    def widened(self, states: torch.Tensor) -> torch.Tensor:
        """A row from the states of `asking`, of shape (1, tokens, ...): those of all other tokens are 0."""
        whole = states.new_zeros(states.shape[0], sum(map(sum, self.lengths)), *states.shape[2:])
        return whole.index_copy(1, self.asking, states)

    @functools.cached_property
    def longest(self) -> int:
        """The tokens of the longest sequence."""
        return max(prompt + tokens for prompt, *completions in self.lengths for tokens in completions)

    @functools.cached_property
    def sequences(self) -> dict[str, Any]:
        """The begins and ends of the sequences, as arguments of `varlen_attn`."""
        return {
            "cu_seq_q": self.bounds["few queries" if self.narrow else "queries"].int(),
            "cu_seq_k": self.bounds["keys"].int(),
            "max_q": max(self.queries),
            "max_k": self.longest,
        }

    def with_prompts(self, states: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """A row's keys or values, sequence by sequence: the prompt's and the completion's."""
        # A slice would fill the whole tensor with zeros in the backward; a split does not.
        parts = iter(states.split_with_sizes([tokens for group in self.lengths for tokens in group], dim=2))
        groups = [[next(parts) for _ in group] for group in self.lengths]
        return [(prompt, completion) for prompt, *completions in groups for completion in completions]

    def mask(self, queries: int, keys: int, window: int | None) -> torch.Tensor | None:
        """The keys that a sequence's last queries see, for PyTorch's attention; None is plain causal attention."""
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


def _asking(groups: Sequence[Sequence[int]], narrow: bool) -> list[int]:
    """The number of queries of each sequence: of prompts all tokens or, with `narrow`, the last one."""
    first = ((1 if narrow else prompt, *completions) for prompt, *completions in groups)
    return [tokens for prompt, chosen, *others in first for tokens in (prompt + chosen, *others)]


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
    if "sliding_window" not in kwargs and declared and declared < layout.longest:
        raise UserError(f"the model does not pass its window of {declared} tokens on to its attention; {REMEDY}")
    if layout.narrow:
        query = query.index_select(2, layout.asking)
    if not kwargs.get("dropout") and _has_flash_attention(query, key, value):
        output = _flash_attention(query, key, value, layout, window, kwargs.get("scaling"))
        return layout.widened(output) if layout.narrow else output, None
    outputs = []
    sequences = zip(
        query.split_with_sizes(layout.queries, dim=2), layout.with_prompts(key), layout.with_prompts(value), strict=True
    )
    for queries, *copied in sequences:
        keys, values = (torch.cat(parts, dim=2) for parts in copied)
        mask = layout.mask(queries.shape[2], keys.shape[2], window)
        outputs.append(sdpa_attention_forward(module, queries, keys, values, mask, **kwargs)[0])
    output = torch.cat(outputs, dim=1)
    return layout.widened(output) if layout.narrow else output, None


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
