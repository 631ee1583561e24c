"""The attention kernel that shared prompts call, by itself."""

import inspect
from typing import Any, cast

import torch
from torch.nn.attention.varlen import varlen_attn

from .attention import exact_attention
from .machine import Machine
from .results import Record


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
    has_option = "enable_gqa" in inspect.signature(varlen_attn).parameters
    if has_option:
        options["enable_gqa"] = heads != key_heads
    found = cast(torch.Tensor, varlen_attn(row[0], row[1][again], row[2][again], **options))
    results = [found, *torch.autograd.grad((found * weight).sum(), row)]

    exact_row = [tensor.detach().float().requires_grad_() for tensor in row]
    outputs = []
    for places, count in ((again[: prompt + chosen], prompt + chosen), (again[prompt + chosen :], rejected)):
        # As many queries as keys, of which the last ones count.
        queries, keys, values = (states_of[places][None].transpose(1, 2) for states_of in exact_row)
        attended, _ = exact_attention(torch.nn.Identity(), queries, keys, values, None, sliding_window=window)
        outputs.append(attended[0, -count:])
    exact = torch.cat(outputs)
    expected = [exact, *torch.autograd.grad((exact * weight.float()).sum(), exact_row)]
    names = ("output", "query", "key", "value")
    record: Record = {
        name: ((one.float() - other).norm() / other.norm()).item()
        for name, one, other in zip(names, results, expected, strict=True)
    }
    return record | {"enable_gqa": has_option, "right": all(record[name] < 1e-2 for name in names)}
