"""The tokenizer that counts and renders is the one that `AutoTokenizer` finds, and costs less to have."""

import json
import subprocess
import sys

import pytest
from real_templates import FAMILIES, tokenizer_of
from transformers import AutoTokenizer, GPT2Tokenizer

from notewriter.models.tokenizer import load_tokenizer

CHAT = [{"role": "user", "content": "Whose museum is it?\n\nThe river's."}]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_renders_and_counts_as_autotokenizer_does(family, tmp_path):
    wrapped, _ = tokenizer_of(family)
    wrapped.save_pretrained(tmp_path)
    ours, expected = load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    for tokenize in (False, True):
        options = {"tokenize": tokenize, "add_generation_prompt": True, "return_dict": False}
        assert ours.apply_chat_template(CHAT, **options) == expected.apply_chat_template(CHAT, **options)
    assert ours("When? Years ago.")["input_ids"] == expected("When? Years ago.")["input_ids"]


def test_a_vocabulary_without_tokenizer_json_is_read_too(tmp_path):
    vocabulary = {"<|endoftext|>": 0, "t": 1, "o": 2, "to": 3}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt o\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    tokenizer = load_tokenizer(str(tmp_path))
    assert isinstance(tokenizer, GPT2Tokenizer) and tokenizer("tot")["input_ids"] == [3, 1]


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="instantiate the backend tokenizer"):
        load_tokenizer(str(tmp_path))


def test_a_chat_template_is_checked_without_torch(tiny_model):
    script = "import sys; from notewriter.models.chat_template import check_template; check_template(sys.argv[1], {})"
    command = [sys.executable, "-c", f"{script}; print(*sys.modules)", str(tiny_model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {"torch", "sklearn"}.isdisjoint(done.stdout.split())
