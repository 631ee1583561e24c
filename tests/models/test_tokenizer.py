"""The tokenizer that counts and renders is the one that `AutoTokenizer` finds, and costs less to have."""

import json
import shutil
import subprocess
import sys

import pytest
from real_templates import FAMILIES, tokenizer_of
from transformers import AutoTokenizer, GPT2Tokenizer

from notewriter.ground.errors import UserError
from notewriter.models.tokenizer import check_class, load_tokenizer

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


@pytest.mark.parametrize("family", FAMILIES)
def test_the_class_of_a_family_divides_texts_as_its_tokenizer_json(family, tmp_path):
    wrapped, _ = tokenizer_of(family)
    wrapped.save_pretrained(tmp_path)
    check_class(AutoTokenizer.from_pretrained(tmp_path), str(tmp_path))


def test_a_file_that_cuts_and_fills_up_divides_texts_as_before(tmp_path):
    """As it is saved after a batch was made."""
    wrapped, _ = tokenizer_of(next(iter(FAMILIES)))
    wrapped.pad_token = wrapped.eos_token
    wrapped(["Whose?"], padding="max_length", max_length=64, truncation=True)
    wrapped.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "tokenizer.json").read_text())["padding"]
    check_class(AutoTokenizer.from_pretrained(tmp_path), str(tmp_path))


@pytest.mark.parametrize("name", ["LlamaTokenizerFast", "CodeLlamaTokenizerFast"])
def test_a_class_that_makes_other_tokens_is_refused(tiny_model, tmp_path, name):
    """As a known family's folders have it: transformers 5 then loses all spaces of a byte-level vocabulary."""
    for file in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(tiny_model / file, tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"tokenizer_class": name}
    settings.pop("backend", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"the class (Code)?LlamaTokenizer makes other tokens than tokenizer"):
        check_class(AutoTokenizer.from_pretrained(tmp_path), str(tmp_path))


def test_a_tokenizer_without_its_files_normaliser_is_refused_though_plain_words_are_equal(tmp_path):
    tokenizer, _ = tokenizer_of(next(iter(FAMILIES)))
    tokenizer.save_pretrained(tmp_path)
    file = json.loads((tmp_path / "tokenizer.json").read_text()) | {"normalizer": {"type": "NFKC"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    with pytest.raises(UserError, match=r"makes other tokens than tokenizer\.json has \('\ufb01rst"):
        check_class(tokenizer, str(tmp_path))


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="instantiate the backend tokenizer"):
        load_tokenizer(str(tmp_path))


def test_a_chat_template_is_checked_without_torch(tiny_model):
    script = "import sys; from notewriter.models.chat_template import check_template; check_template(sys.argv[1], {})"
    command = [sys.executable, "-c", f"{script}; print(*sys.modules)", str(tiny_model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {"torch", "sklearn"}.isdisjoint(done.stdout.split())
