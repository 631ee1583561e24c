"""The rendering of messages with a model's chat template, to a server's token ids, and the tokens that end a turn."""

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import jinja2
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from notewriter.ground.errors import UserError
from notewriter.ground.typed import misfit
from notewriter.models import chat_template
from notewriter.models.checkpoint import load
from notewriter.models.tokenizer import check_class
from notewriter.training.inputs.forms import Message
from notewriter.training.model import generation

QUESTION = {"role": "user", "content": "the"}
ANSWER = {"role": "assistant", "content": "town"}


def load_tokenizer(name: str, revision: str, variables: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; `variables` become defaults of its chat template.

    Raises:
        UserError: it cannot be loaded, divides texts otherwise than its tokenizer.json, has no chat template, or its
            template lacks a variable.
    """
    tokenizer: PreTrainedTokenizerBase = load(AutoTokenizer, name, revision=revision)
    check_class(tokenizer, name, revision)
    if not chat_template.templates_of(tokenizer, name):
        raise UserError(
            f"{name}: its tokenizer has no chat template; use an instruction-tuned model, or add chat_template.jinja "
            "to its folder"
        )
    set_variables(tokenizer, variables)
    return tokenizer


def stop_tokens(name: str, revision: str, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens at which a server stops: the tokenizer's end of sequence, and those of `generation_config.json`."""
    configured = generation.settings_of(name, revision).eos_token_id
    if problem := misfit(configured, int | list[int] | None, "eos_token_id"):
        raise UserError(f"{name}: generation_config.json: {problem}; copy or save it again")
    stops = configured if isinstance(configured, list) else [configured]
    return frozenset(stop for stop in (tokenizer.eos_token_id, *stops) if stop is not None)


def set_variables(tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, Any]) -> None:
    """Set variables of the tokenizer's chat templates, in training and in the templates saved with the model.

    Raises:
        UserError: a value that no request can contain, or a variable that no template has.
    """
    chat_template.check_settings(settings)
    templates = chat_template.templates_of(tokenizer, tokenizer.name_or_path)
    chat_template.check_known("\n".join(templates.values()), settings, tokenizer.name_or_path)
    if settings:
        templates = {name: chat_template.preset(template, settings) for name, template in templates.items()}
        tokenizer.chat_template = templates if len(templates) > 1 else templates["default"]


def render(
    conversations: Sequence[Sequence[Message]],
    tokenizer: PreTrainedTokenizerBase,
    generate: bool = False,
    given: Sequence[Mapping[str, Any]] = (),
) -> list[list[int]]:
    """The token ids of conversations; with `generate`, including the opening of the assistant's next turn.

    `given` has the `tools` of each conversation and its variables of the template, as far as there are any. A fast
    tokenizer uses all cores for a batch of conversations, and one core for a single one.

    Raises:
        jinja2.TemplateError: the chat template refuses a conversation.
        UserError: the token ids depend on the day, or the template leaves out the messages of a role.
    """
    check_written({message["role"] for messages in conversations for message in messages}, tokenizer)

    def rendered(clock: chat_template.Clock) -> list[list[int]]:
        if not any(given):
            return _token_ids(conversations, tokenizer, generate, clock)
        both = zip(conversations, given, strict=True)
        return [_token_ids([each], tokenizer, generate, clock, own)[0] for each, own in both]

    return chat_template.undated(rendered, tokenizer.get_chat_template(), tokenizer.name_or_path)


def given(row: Mapping[str, Any]) -> dict[str, Any]:
    """The template variables of a row beside its messages."""
    tools, variables = row.get("tools"), row.get("variables")
    return ({"tools": tools} if tools else {}) | (variables or {})


def check_written(roles: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that the chat template writes the texts of messages of these roles.

    Raises:
        UserError: it leaves those of a role out, such as a template that takes lists of parts alone.
    """
    for role in sorted(roles):
        message = {"role": role, "content": "museum"}
        asked: dict[str, list[dict[str, str]]] = {"system": [], "user": [], "assistant": [QUESTION]}
        before, after = asked.get(role, [QUESTION, ANSWER]), [QUESTION] if role == "system" else []
        text = None
        # A message that the template refuses is reported later, with its row.
        with contextlib.suppress(jinja2.TemplateError), refusals():
            options: dict[str, Any] = {"strftime_now": chat_template.DAYS[0].strftime}
            text = str(tokenizer.apply_chat_template([*before, message, *after], tokenize=False, **options))
        if text is not None and message["content"] not in text:
            raise UserError(
                f"{tokenizer.name_or_path}: its chat template leaves out the text of a message of the role {role}, or "
                "accepts it only as a list of parts; use a model whose template writes texts, or change "
                "chat_template.jinja in a copy of its folder"
            )


def _token_ids(
    conversations: Sequence[Sequence[Message]],
    tokenizer: PreTrainedTokenizerBase,
    generate: bool = False,
    clock: chat_template.Clock = chat_template.DAYS[0].strftime,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> list[list[int]]:
    with refusals():
        rendered = tokenizer.apply_chat_template(
            [[dict(message) for message in messages] for messages in conversations],
            add_generation_prompt=generate,
            return_dict=True,
            tokenizer_kwargs={"return_attention_mask": False},
            strftime_now=clock,
            **given,
        )
    # With `return_dict` the result is a mapping, whatever its annotation says.
    return list(cast(Mapping[str, list[list[int]]], rendered)["input_ids"])


def text_of(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> str:
    """The text of token ids."""
    # For one sequence `decode` returns one text.
    return cast(str, tokenizer.decode(list(ids)))


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Any failure of a chat template as jinja2's own error: it may divide by zero, or ask for a huge range."""
    try:
        yield
    except jinja2.TemplateError:
        raise
    except Exception as error:
        raise jinja2.TemplateRuntimeError(f"{type(error).__name__}: {error}") from error


def end_of_turn(tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> int | None:
    """The token to append to a last turn that the chat template leaves open; None if the template closes it.

    GLM-4's template closes no turn: the role marker of the next turn ends it. So the token is the first of a user's
    turn if that is one of `stops`, at which a server stops; else the tokenizer's end of sequence if that is one.

    Raises:
        jinja2.TemplateError: the chat template refuses a short conversation.
    """
    (ids,) = _token_ids([[QUESTION, ANSWER]], tokenizer)
    if not text_of(ids, tokenizer).rstrip().endswith(ANSWER["content"]):
        return None
    (continued,) = _token_ids([[QUESTION, ANSWER, QUESTION]], tokenizer)
    return next((token for token in (*continued[len(ids) :][:1], tokenizer.eos_token_id) if token in stops), None)


def opening_remedy(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The remedy for a template that opens the model's turn differently from how it shows an answer, or None.

    Templates of thinking models open `<think>` for the model, and show an answer without it or with an empty thought.
    A variable that switches this off (`enable_thinking`) is named. None also if only tokens differ and not the text,
    such as line breaks that merge with what follows.
    """
    if _opens_as_shown(tokenizer):
        return None
    template = tokenizer.get_chat_template()
    quiet = copy.copy(tokenizer)
    for name in sorted(name for name in chat_template.variables(template) if "think" in name):
        quiet.chat_template = chat_template.preset(template, {name: False})
        if _opens_as_shown(quiet):
            return f"set chat_template_kwargs: {{{name}: false}}, for training and serving"
    ((prompt,), (whole,)) = (
        _token_ids([[QUESTION]], tokenizer, generate=True),
        _token_ids([[QUESTION, ANSWER]], tokenizer),
    )
    if text_of(whole, tokenizer).startswith(text_of(prompt, tokenizer)):
        return None
    opening = tokenizer.decode(prompt[parting(prompt, whole) :])
    return (
        f"the template opens each answer with {opening!r} and has no variable that switches it off: copy the model's "
        "folder, remove this opening from the end of chat_template.jinja, and train and serve the copy"
    )


def _opens_as_shown(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the token ids of a shown answer begin with those of the prompt that the model answers."""
    (prompt,) = _token_ids([[QUESTION]], tokenizer, generate=True)
    (whole,) = _token_ids([[QUESTION, ANSWER]], tokenizer)
    return whole[: len(prompt)] == prompt


def parting(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The position of the first token, or other item, in which two sequences differ."""
    shorter = min(len(first), len(second))
    return next((place for place in range(shorter) if first[place] != second[place]), shorter)
