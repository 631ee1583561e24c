"""What a chat template makes of messages, whichever way it ends a turn."""

from pathlib import Path

import jinja2
import pytest
from chat_families import STOPS, TEMPLATES, tokenizer_of
from transformers import AutoTokenizer

from notewriter.ground.errors import UserError
from notewriter.training.inputs import rendering

QUESTION = [{"role": "user", "content": "whose museum"}]
ANSWERED = [*QUESTION, {"role": "assistant", "content": "a river"}]


@pytest.mark.parametrize("family", TEMPLATES)
def test_conversations_have_the_same_tokens_together_as_alone(family: str) -> None:
    tokenizer, _ = tokenizer_of(TEMPLATES[family], STOPS[family])

    for generate in (False, True):
        alone = [
            tokenizer.apply_chat_template(messages, add_generation_prompt=generate, return_dict=True)["input_ids"]
            for messages in (QUESTION, ANSWERED)
        ]
        assert rendering.render([QUESTION, ANSWERED], tokenizer, generate) == alone


@pytest.mark.parametrize("family", ["chatml", "llama3", "mistral"])
def test_a_template_that_closes_the_turn_needs_no_token(family: str) -> None:
    tokenizer, stops = tokenizer_of(TEMPLATES[family], STOPS[family])

    assert rendering.end_of_turn(tokenizer, stops) is None


def test_a_turn_closed_by_a_token_at_which_no_server_stops_is_left_as_it_is() -> None:
    # Another token after it would teach the model to go on after its own end of turn.
    tokenizer, stops = tokenizer_of(TEMPLATES["chatml"], ["<|endoftext|>"])

    assert rendering.end_of_turn(tokenizer, stops) is None


def test_an_open_turn_ends_with_the_next_turns_marker_where_a_server_stops_there() -> None:
    tokenizer, stops = tokenizer_of(TEMPLATES["glm4"], STOPS["glm4"])
    assert tokenizer.decode([rendering.end_of_turn(tokenizer, stops)]) == "<|user|>"

    tokenizer, stops = tokenizer_of(TEMPLATES["glm4"], ["<|endoftext|>"])
    assert tokenizer.decode([rendering.end_of_turn(tokenizer, stops)]) == "<|endoftext|>"

    assert rendering.end_of_turn(tokenizer, frozenset()) is None


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for turn in range(10**9) %}{% endfor %}", "Range too big"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ messages + 1 }}", "TypeError: can only concatenate"),
        ("{{ messages[0].content.index('zebra') }}", "ValueError: substring not found"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "RecursionError: maximum recursion depth"),
        ("{{ 'x' * 10**19 }}", "OverflowError: cannot fit 'int'"),
        ("{{ messages[7].content.text }}", "has no element 7"),
        ("{% for %}", "Expected an expression"),
    ],
)
def test_whatever_a_template_fails_with_it_is_the_templates_failure(template: str, words: str) -> None:
    tokenizer, _ = tokenizer_of(template, STOPS["chatml"])

    with pytest.raises(jinja2.TemplateError, match=words):
        rendering.render([QUESTION], tokenizer)


def test_stop_tokens_are_the_tokenizers_and_the_generation_configurations(tiny_model: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')

    assert rendering.stop_tokens(str(tmp_path), "main", tokenizer) == {tokenizer.eos_token_id, 7, 9}


MOOD = "{% if mood is defined %}[{{ mood }}]{% endif %}"
PLAIN = MOOD + "{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}"


def test_variables_are_set_in_all_templates_of_a_model(tiny_model: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = {"default": PLAIN, "tool_use": "{{ tools | length }} tools " + PLAIN}
    tokenizer.save_pretrained(tmp_path)
    loaded = rendering.load_tokenizer(str(tmp_path), "main", {"mood": "glad"})
    for tools in (None, [{"type": "function", "function": {"name": "find", "parameters": {}}}]):
        text = loaded.apply_chat_template([{"role": "user", "content": "Who?"}], tools=tools, tokenize=False)
        assert text == f"{'1 tools ' if tools else ''}[glad]user: Who?\n"


def test_templates_without_a_default_are_named(tiny_model: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = {"rag": PLAIN, "tool_use": PLAIN}
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"has the chat templates rag, tool_use, and none .* copy the right one"):
        rendering.load_tokenizer(str(tmp_path), "main", {})
