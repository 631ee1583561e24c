"""Fingerprints: what a run uses is recognised by its contents, not by its path."""

import pytest

from notewriter.artifacts.fingerprints import fingerprints


@pytest.mark.parametrize("step", ["rerank", "extract"])
def test_another_model_in_a_step_of_the_retriever_is_noticed(step, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    config = {"retriever": [{"index": "absent"}, {step: str(tmp_path)}]}
    before = fingerprints(config)
    assert list(before) == [f"{step}: {tmp_path}"]
    (tmp_path / "model.safetensors").write_bytes(b"others!")
    assert fingerprints(config) != before
