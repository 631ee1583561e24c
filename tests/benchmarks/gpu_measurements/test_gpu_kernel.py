"""Attention written out, and the kernel that is compared with it."""

import pytest
import torch

from benchmarks.gpu_measurements import attention, kernel


def test_exact_attention_is_that_of_pytorch(monkeypatch):
    monkeypatch.setattr(attention, "ROWS", 5)
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 13, 8), torch.randn(1, 2, 13, 8), torch.randn(1, 2, 13, 8)
    found, _ = attention.exact_attention(torch.nn.Identity(), query, key, value, None)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(found, expected.transpose(1, 2))

    found, _ = attention.exact_attention(torch.nn.Identity(), query, key, value, None, sliding_window=3)
    sees = torch.ones(13, 13, dtype=torch.bool).tril().triu(-2)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, sees, enable_gqa=True)
    torch.testing.assert_close(found, expected.transpose(1, 2))


@pytest.mark.parametrize(("window", "seen"), [(None, None), (256, 256), (256, 255), (None, 600)])
def test_the_kernel_is_compared_with_exact_attention(window, seen, machine, monkeypatch):
    def varlen_attn(query, key, value, *, cu_seq_q, cu_seq_k, max_q, max_k, window_size, enable_gqa):
        """The kernel, with a window of its own choice."""
        assert window_size == (-1 if window is None else window - 1, 0)
        outputs = []
        for queries, keys in zip(cu_seq_q.unfold(0, 2, 1).tolist(), cu_seq_k.unfold(0, 2, 1).tolist(), strict=True):
            parts = [states[slice(*rows)] for states, rows in ((query, queries), (key, keys), (value, keys))]
            q, k, v = (part.transpose(0, 1)[None].float() for part in parts)
            before = k.shape[2] - q.shape[2]
            sees = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(before)
            sees = sees if seen is None else sees.triu(before - seen + 1)
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, sees, enable_gqa=enable_gqa)
            outputs.append(attended[0].transpose(0, 1).to(query.dtype))
        return torch.cat(outputs)

    monkeypatch.setattr(kernel, "varlen_attn", varlen_attn)
    record = kernel.kernel(machine, 16, 4, 2, window)
    assert record["right"] == (window == seen)
