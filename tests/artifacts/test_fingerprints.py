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


def test_another_file_of_the_questions_passages_is_noticed(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"question_id": "q", "passages": ["a"]}\n')
    config = {"retriever": [{"index": "absent"}, {"within": str(file)}]}
    before = fingerprints(config)
    assert list(before) == [f"within: {file}"]
    file.write_text('{"question_id": "q", "passages": ["b"]}\n')
    assert fingerprints(config) != before
    for without_contents in ("pages", "absent.jsonl"):
        assert fingerprints({"retriever": [{"index": "absent"}, {"within": without_contents}]}) == {}


def test_another_chat_template_in_a_file_that_an_option_names_is_noticed(tmp_path):
    template = tmp_path / "fixed.jinja"
    template.write_text("{{ messages }}")
    config = {"serve_options": {"chat_template": str(template), "dtype": "float32", "max_model_len": 4096}}
    before = fingerprints(config)
    assert list(before) == [f"serve_options: chat_template: {template}"]
    template.write_text("{{ messages[0] }}")
    assert fingerprints(config) != before
