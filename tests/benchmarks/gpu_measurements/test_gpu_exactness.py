"""Shared and stacked scoring of toy models against exact scores."""

import pytest

from benchmarks.gpu_measurements.exactness import exactness
from training.prefix_sharing import Layout


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Gemma-3-4B"])
def test_a_toy_model_scores_right_both_ways(model, machine):
    record = exactness(machine, model, "ragged", "fp32")
    assert record["right"]
    assert record["shared"]["log_prob"] < 1e-5


def test_sharing_that_is_wrong_is_called_wrong(machine, monkeypatch):
    mask = Layout.mask
    monkeypatch.setattr(Layout, "mask", lambda layout, queries, keys, _: mask(layout, queries, keys, 5))
    assert not exactness(machine, "Llama-3.1-8B", "ragged", "bf16")["right"]
