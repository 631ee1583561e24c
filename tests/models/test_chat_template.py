"""Chat templates: their variables and dates are checked before anything is trained or served."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from real_templates import template_of, tokenizer_of
from transformers import PreTrainedTokenizerBase

from notewriter.ground.errors import UserError
from notewriter.models import chat_template


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"messages": []}, "chat_template_kwargs: messages cannot be set"),
        ({"strftime_now": "26 Jul 2024"}, "chat_template_kwargs: strftime_now cannot be set"),
        ({"chat_template": "{{ messages }}"}, "chat_template_kwargs: chat_template cannot be set"),
        ({"enable-thinking": False}, "chat_template_kwargs: enable-thinking cannot be set"),
        ({1: False}, "chat_template_kwargs: 1 cannot be set"),
        ({"date_string": date(2024, 7, 26)}, r"date_string: .* is not a string, a number, .* put dates in quotes"),
        ({"budget": float("nan")}, "budget: nan is not a string, a number"),
        ("enable_thinking", "chat_template_kwargs: 'enable_thinking' is not a mapping"),
    ],
)
def test_what_no_request_can_hold_is_refused(settings: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        chat_template.check_settings(settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("SmolLM2", set()),
        ("SmolLM3", {"enable_thinking", "xml_tools", "python_tools"}),
        ("Qwen3", {"enable_thinking"}),
        ("Llama-3.2", {"date_string", "custom_tools", "tools_in_user_message"}),
        ("gpt-oss", {"reasoning_effort", "model_identity", "builtin_tools"}),
    ],
)
def test_a_templates_variables_are_those_that_a_request_can_set(family: str, names: set[str]) -> None:
    assert chat_template.variables(template_of(family)) == names


def test_a_variable_that_the_template_does_not_have_is_named_with_those_it_has() -> None:
    with pytest.raises(UserError, match=r"the chat template of qwen has no variable enable_thnking; it has enable_th"):
        chat_template.check_known(template_of("Qwen3"), {"enable_thnking": False}, "qwen")
    with pytest.raises(UserError, match="no variable enable_thinking; it has none"):
        chat_template.check_known(template_of("SmolLM2"), {"enable_thinking": False}, "smollm2")


@pytest.mark.parametrize("value", ['it\'s "26" %} {{ 7 }} é\n\\', 2.5e-7, -3, True, None, ["a", {"b": [1]}]])
def test_values_come_through_a_preset_unchanged(value: object) -> None:
    tokenizer, _ = tokenizer_of("SmolLM2")
    template = "{{ colour | default('none') | tojson }}"
    question = [{"role": "user", "content": "the"}]

    preset = tokenizer.apply_chat_template(
        question, chat_template=chat_template.preset(template, {"colour": value}), tokenize=False
    )

    assert preset == tokenizer.apply_chat_template(question, chat_template=template, tokenize=False, colour=value)


def test_a_date_that_is_asked_for_and_not_written_is_no_fault() -> None:
    asked = []

    def render(clock: Callable[[str], str]) -> str:
        asked.append(clock("%d %B %Y"))
        return "the town"

    assert chat_template.undated(render, "", "model") == "the town"
    assert len(set(asked)) == 2


@pytest.mark.parametrize(
    "form", ["%d", "%m", "%Y", "%y", "%b", "%B", "%A", "%a", "%j", "%U", "%F", "%H", "%I", "%p", "%M"]
)
def test_every_part_of_a_date_is_noticed(form: str) -> None:
    with pytest.raises(UserError, match="model: its chat template writes today's date"):
        chat_template.undated(lambda clock: clock(form), "{{ strftime_now('%d') }}", "model")


def save(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """A folder with the file names of a model."""
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("Qwen3", {"enable_thinking": False}, None),
        ("Qwen3", {"thinking": False}, "has no variable thinking; it has enable_thinking"),
        ("Llama-3.2", {}, "writes today's date into prompts; set chat_template_kwargs: {date_string"),
        ("Llama-3.2", {"date_string": "26 Jul 2024"}, None),
        ("SmolLM3", {}, "writes today's date into prompts; it has no variable for the date"),
        ("SmolLM3 on a day", {}, None),
    ],
)
def test_what_a_server_would_ignore_or_change_from_day_to_day_is_found_before_it_starts(
    tmp_path: Path, family: str, settings: dict[str, object], message: str | None
) -> None:
    tokenizer, _ = tokenizer_of(family)
    tokenizer.chat_template = template_of(family)
    save(tokenizer, tmp_path)

    if message is None:
        chat_template.check_template(str(tmp_path), settings)
        return
    with pytest.raises(UserError, match=message):
        chat_template.check_template(str(tmp_path), settings)


def test_a_template_that_is_served_in_place_of_the_models_own_is_the_one_that_is_checked(tmp_path: Path) -> None:
    tokenizer, _ = tokenizer_of("Llama-3.2 on a day")
    tokenizer.chat_template = template_of("Llama-3.2")
    save(tokenizer, tmp_path)
    fixed = tmp_path / "fixed.jinja"
    fixed.write_text(template_of("Llama-3.1"))

    chat_template.check_template(str(tmp_path), {}, str(fixed))


def test_a_model_whose_tokenizer_cannot_be_loaded_is_left_to_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text("{}")

    chat_template.check_template(str(tmp_path), {"enable_thinking": False})

    assert "its chat template cannot be read" in caplog.text


def test_what_is_no_model_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a model folder"):
        chat_template.check_template(str(tmp_path), {})
    with pytest.raises(UserError, match="models/absent: is neither a model folder nor a hub id"):
        chat_template.check_template("models/absent", {})


def test_a_template_that_fails_is_named_before_a_server_starts(tmp_path: Path) -> None:
    tokenizer, _ = tokenizer_of("SmolLM2")
    tokenizer.chat_template = "{% for number in range(10**9) %}{% endfor %}"
    save(tokenizer, tmp_path)
    with pytest.raises(UserError, match=r"its chat template fails on a user message .*Range too big"):
        chat_template.check_template(str(tmp_path), {})
