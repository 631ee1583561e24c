"""What a served model is asked with: as training rendered its prompts, and with the sampling that the options say."""

import json
import logging
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from real_templates import FAMILIES, template_of, tokenizer_of

from notewriter.ground.errors import UserError
from notewriter.models import served
from notewriter.models.chat_template import preset, presets
from notewriter.models.servers import Wanted

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
LISTS = (
    "{% for m in messages %}{% for part in m.content if part.type == 'text' %}{{ part.text }}{% endfor %}{% endfor %}"
)


@pytest.fixture
def folder(tmp_path):
    """Makes the folder of a model with a chat template and settings of generation."""

    def make(template, family="SmolLM2", **generation):
        tokenizer, _ = tokenizer_of(family)
        tokenizer.chat_template = template
        model = tmp_path / str(len(list(tmp_path.iterdir())))
        tokenizer.save_pretrained(model)
        (model / "config.json").write_text("{}")
        (model / "model.safetensors").write_bytes(b"")
        if generation:
            (model / "generation_config.json").write_text(json.dumps(generation))
        return str(model)

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_templates_that_write_texts_get_texts(folder, family):
    assert served.options_of(folder(template_of(family), family), {})["chat_template_content_format"] == "string"


def test_a_template_that_takes_lists_alone_is_left_to_vllm(folder):
    assert served.options_of(folder(LISTS), {}) == {}


def test_a_model_that_is_neither_here_nor_on_the_hub_is_said_to_be_missing_before_a_server_starts(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    missing = r"someone/absent: is not in the Hub's cache of this machine.*run `notewriter fetch model someone/absent "
    with pytest.raises(UserError, match=missing):
        served.options_of("someone/absent", {})
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "someone/absent"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    with pytest.raises(UserError, match=missing):
        served.options_of(str(tmp_path), {})
    cached = tmp_path / "cache/models--someone--absent"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs/main").write_text("c0ffee")
    (cached / "snapshots/c0ffee").mkdir(parents=True)
    (cached / "snapshots/c0ffee/config.json").write_text("{}")
    assert served.options_of(str(tmp_path), {}) == {}


@pytest.mark.parametrize("name", ["LlamaTokenizerFast", "CodeLlamaTokenizerFast"])
def test_a_tokenizer_whose_class_makes_other_tokens_is_not_served(tiny_model, tmp_path, name):
    for file in ("tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors"):
        shutil.copy(tiny_model / file, tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"tokenizer_class": name}
    settings.pop("backend", None)
    served.options_of(str(tiny_model), {})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"the class (Code)?LlamaTokenizer makes other tokens than tokenizer"):
        served.options_of(str(tmp_path), {})


def test_the_users_own_options_stay(folder):
    model = folder(CHATML, repetition_penalty=1.5, top_k=5)
    own = {
        "chat_template_content_format": "openai",
        "override_generation_config": {"top_k": 7},
        "max_model_len": 512,
    }
    assert served.options_of(model, own) == own | {
        "override_generation_config": {"repetition_penalty": 1.0, "top_k": 7}
    }


OFF = preset(CHATML, {"enable_thinking": False})


@pytest.mark.parametrize(
    ("template", "values"),
    [
        (CHATML, None),
        (OFF + "{% if not enable_thinking %}<think></think>{% endif %}", {"enable_thinking": False}),
        # Switched off unless a request says otherwise, without a preset.
        (CHATML + "{% if thinking is defined and thinking %}<think>{% else %}</think>{% endif %}", {"thinking": False}),
        (template_of("Qwen3"), {"enable_thinking": True}),
        (CHATML + "{{ reasoning_effort | default('medium') }}", {"reasoning_effort": "medium"}),
        (
            "{% if reasoning_effort is undefined %}{% set reasoning_effort = 'low' %}{% endif %}"
            "{{ reasoning_effort }}" + CHATML,
            {"reasoning_effort": "low"},
        ),
        (
            CHATML + "{{ reasoning_effort if reasoning_effort is defined else 'high' }}",
            {"reasoning_effort": "high"},
        ),
        # No switch: what it writes is the value itself.
        (CHATML + "{{ reasoning_effort or 'low' }}", None),
        # A value that the template refuses is none of its own.
        (CHATML + "{% if thinking is boolean %}{{ raise_exception('auto, off') }}{% endif %}", None),
    ],
)
def test_a_reasoning_parser_is_told_the_templates_own_values(folder, template, values):
    model = folder(template)
    assert served.options_of(model, {"reasoning_parser": "qwen3"}).get("default_chat_template_kwargs") == values
    assert "default_chat_template_kwargs" not in served.options_of(model, {})


def test_values_that_the_user_gives_a_parser_come_before_the_templates(folder):
    own = {"reasoning_parser": "qwen3", "default_chat_template_kwargs": {"enable_thinking": True, "a": 1}}
    assert served.options_of(folder(OFF), own)["default_chat_template_kwargs"] == {"enable_thinking": True, "a": 1}


@pytest.mark.parametrize("settings", [{"enable_thinking": False}, {"reasoning_effort": "low", "day": "26 Jul 2024"}])
def test_what_training_sets_in_a_template_is_read_from_it(settings):
    assert presets(preset(CHATML, settings)) == settings


def test_what_a_model_would_sample_with_unasked_is_switched_off_and_said(folder, caplog):
    model = folder(CHATML, repetition_penalty=1.5, top_k=5, min_p=0.0, temperature=0.6, eos_token_id=[1, 2])
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            options = served.options_of(model, {})
    assert options["override_generation_config"] == {"repetition_penalty": 1.0, "top_k": -1}
    (line,) = (each for each in caplog.messages if "generation_config" in each)
    assert "served without repetition_penalty 1.5, top_k 5 of its generation_config.json" in line


@pytest.mark.parametrize("word", ["auto", "vllm", "elsewhere"])
def test_a_model_samples_with_its_own_where_the_user_says_so(folder, word):
    options = served.options_of(folder(CHATML, top_k=5), {"generation_config": word})
    assert "override_generation_config" not in options


def test_damaged_settings_of_generation_are_left_to_vllm(folder):
    model = folder(CHATML)
    for text in ("{", "[]"):
        Path(model, "generation_config.json").write_text(text)
        served._of_sampling.cache_clear()
        assert "override_generation_config" not in served.options_of(model, {})


def test_these_options_tell_servers_apart(folder):
    model = folder(OFF)
    plain, parsed = Wanted(model, {}), Wanted(model, {"reasoning_parser": "qwen3"})
    assert plain.options == {"chat_template_content_format": "string"} and plain.key != parsed.key
