"""DPO forwards that compute a pair's prompt once instead of twice.

TRL scores a batch of pairs as a stack `[chosen; rejected]`, in which every prompt stands twice. Here each
pair becomes one row, `prompt | chosen | rejected`, where both completions see the prompt and themselves
but not each other, and only the positions that predict a completion go through the language-model head. The
log-probs come back in the stack's shape, so the loss and everything after it stay TRL's.

With a prompt of P and completions of C tokens the limit of the speed-up is 2(P + C) / (P + 2C).
"""

import functools
import types
from typing import Any

import torch
from transformers import PreTrainedModel
from trl.trainer.utils import FusedCausalLMOutput

from notewriter.errors import UserError


def share_prefixes(model: PreTrainedModel) -> None:
    """Change a model that has TRL's fused head so that its scoring of stacked pairs shares their prompts.

    All other calls of the model, generation for one, stay as they are.

    Raises:
        UserError: the model's attention looks back over a window, which a shared row would widen.
    """
    configuration = model.config.get_text_config()
    kinds = set(getattr(configuration, "layer_types", None) or ["full_attention"])
    if getattr(configuration, "sliding_window", None):
        kinds.add("sliding_attention")
    if kinds != {"full_attention"}:
        raise UserError(
            f"{model.config.model_type}: attention is {', '.join(sorted(kinds))}; set prefix_sharing: false"
        )
    original = model.forward

    @functools.wraps(original)
    def forward(self: PreTrainedModel, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        if not fused_lm_head:
            return original(*args, **kwargs)
        return _score_pairs(original, **kwargs)

    model.forward = types.MethodType(forward, model)


def _score_pairs(
    forward: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **kwargs: Any
) -> FusedCausalLMOutput:
    """What TRL's fused head returns for a stack of pairs; every field has the shape (2 x pairs, length - 1)."""
    pairs = len(input_ids) // 2
    shape = (len(input_ids), input_ids.shape[1] - 1)
    names = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
    fields: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    places = []
    for pair in range(pairs):
        scores, columns = _score_pair(forward, [pair, pairs + pair], input_ids, attention_mask, labels, kwargs)
        for name, value in scores.items():
            fields[name].append(value)
        places.append(columns)
    rows, columns = torch.cat(places, dim=1)
    stacked = {
        name: torch.zeros(shape, dtype=values[0].dtype, device=input_ids.device).index_put(
            (rows, columns), torch.cat(values)
        )
        for name, values in fields.items()
    }
    mask = labels[:, 1:] != -100
    loss = -stacked["log_probs"].sum() / mask.sum().clamp(min=1)
    return FusedCausalLMOutput(loss=loss, label_mask=mask, aux_loss=None, **stacked)


def _score_pair(
    forward: Any,
    rows: list[int],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    labels: torch.Tensor,
    kwargs: dict[str, Any],
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The scores of one pair's completion tokens, and (row, column) of each in the stack, shape (2, tokens)."""
    tokens = [input_ids[row][attention_mask[row].bool()] for row in rows]
    targets = [labels[row][attention_mask[row].bool()] for row in rows]
    starts = [int((target != -100).int().argmax()) for target in targets]
    prompt = starts[0]
    if starts[1] != prompt or not torch.equal(tokens[0][:prompt], tokens[1][:prompt]):
        raise ValueError("the prompt of chosen and rejected is not the same; set prefix_sharing: false")
    # Each branch begins with the prompt's last token: its hidden state predicts the completion's first.
    shared = prompt - 1
    branches = [part[shared:] for part in tokens]
    row = torch.cat([tokens[0][:shared], *branches])
    positions = torch.cat([torch.arange(shared), *(torch.arange(shared, shared + len(part)) for part in branches)])
    segments = torch.cat([torch.full((len(part),), i) for i, part in enumerate([tokens[0][:shared], *branches])])
    predicting = torch.cat(
        [torch.arange(len(branches[0]) - 1) + shared, torch.arange(len(branches[1]) - 1) + shared + len(branches[0])]
    )
    logits = forward(
        input_ids=row[None],
        attention_mask=_mask(segments.to(row.device)),
        position_ids=positions[None].to(row.device),
        logits_to_keep=predicting.to(row.device),
        **kwargs,
    ).logits[0]
    columns = torch.cat(
        [
            torch.stack([torch.full((len(part) - 1,), index), torch.arange(shared, shared + len(part) - 1)])
            for index, part in zip(rows, branches, strict=True)
        ],
        dim=1,
    )
    return _scores(logits, torch.cat([part[1:] for part in branches])), columns.to(row.device)


def _mask(segments: torch.Tensor) -> torch.Tensor:
    """Who sees whom, shape (1, 1, length, length): earlier tokens of the same segment, and the shared segment 0."""
    order = torch.arange(len(segments), device=segments.device)
    sees = (order[:, None] >= order[None]) & ((segments[None] == 0) | (segments[:, None] == segments[None]))
    return sees[None, None]


def _scores(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    """The per-token fields of TRL's fused head, from logits (tokens, vocabulary) and the tokens that came."""
    log_probs = logits.float().log_softmax(dim=-1)
    chosen = log_probs.gather(-1, targets[:, None])[:, 0]
    with torch.no_grad():
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(-1)
        mean_logits = logits.float().mean(-1)
        is_top1 = logits.argmax(-1) == targets
    return {
        "log_probs": chosen,
        "entropy": entropy,
        "log_sum_sq_probs": (2 * log_probs).logsumexp(-1),
        "mean_logits": mean_logits,
        "is_top1": is_top1,
    }
