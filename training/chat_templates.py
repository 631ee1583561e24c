"""What a chat template makes of messages: token ids as a server has them, and what ends the assistant's turn."""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import jinja2
from transformers import PreTrainedTokenizerBase

from notewriter.models import chat_template

Message = Mapping[str, str]

QUESTION = {"role": "user", "content": "the"}
ANSWER = {"role": "assistant", "content": "town"}


def set_variables(tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, Any]) -> None:
    """Give variables of the tokenizer's chat template their values, in training and in what is saved with the model.

    Raises:
        UserError: a value that no request can hold, or a variable that the template does not have.
    """
    chat_template.check_settings(settings)
    template = tokenizer.get_chat_template()
    chat_template.check_known(template, settings, tokenizer.name_or_path)
    if settings:
        tokenizer.chat_template = chat_template.preset(template, settings)


def render(
    conversations: Sequence[Sequence[Message]], tokenizer: PreTrainedTokenizerBase, generate: bool = False
) -> list[list[int]]:
    """The token ids of conversations; with `generate`, up to where the model is to write the assistant's next turn.

    A fast tokenizer uses every core for several conversations, and one for each call with one.

    Raises:
        jinja2.TemplateError: the chat template refuses a conversation.
        UserError: the token ids depend on the day.
    """

    return chat_template.undated(
        lambda clock: _token_ids(conversations, tokenizer, generate, clock),
        tokenizer.get_chat_template(),
        tokenizer.name_or_path,
    )


def _token_ids(
    conversations: Sequence[Sequence[Message]],
    tokenizer: PreTrainedTokenizerBase,
    generate: bool = False,
    clock: chat_template.Clock = chat_template.DAYS[0].strftime,
) -> list[list[int]]:
    with refusals():
        rendered = tokenizer.apply_chat_template(
            [[dict(message) for message in messages] for messages in conversations],
            add_generation_prompt=generate,
            return_dict=True,
            tokenizer_kwargs={"return_attention_mask": False},
            strftime_now=clock,
        )
    # With `return_dict` it is one, whatever its annotation says.
    return list(cast(Mapping[str, list[list[int]]], rendered)["input_ids"])


def text_of(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> str:
    """The text of token ids."""
    # For one sequence `decode` returns one text.
    return cast(str, tokenizer.decode(list(ids)))


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Whatever a chat template fails with, as jinja2's own error: it may divide by zero, or ask for a huge range."""
    try:
        yield
    except jinja2.TemplateError:
        raise
    except Exception as error:
        raise jinja2.TemplateRuntimeError(f"{type(error).__name__}: {error}") from error


def end_of_turn(tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> int | None:
    """The token to add to a last turn that the chat template leaves open; None where the template closes it.

    GLM-4's template closes no turn: what ends one is the role that the next one begins with. So it is the token that
    a turn of the user would begin with, if it is one of `stops`, at which a server stops; else the tokenizer's end of
    sequence, if that is.

    Raises:
        jinja2.TemplateError: the chat template refuses a short conversation.
    """
    (ids,) = _token_ids([[QUESTION, ANSWER]], tokenizer)
    if not text_of(ids, tokenizer).rstrip().endswith(ANSWER["content"]):
        return None
    (continued,) = _token_ids([[QUESTION, ANSWER, QUESTION]], tokenizer)
    return next((token for token in (*continued[len(ids) :][:1], tokenizer.eos_token_id) if token in stops), None)


def opening_remedy(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """What to do where the template has the model begin a turn otherwise than it shows an answer; None where not.

    Templates of models that think open `<think>` for the model, and show an answer without it or with an empty
    thought. Where a variable switches that off (`enable_thinking`), it is named. None also where the text is the same
    and tokens alone differ, as those of line breaks that merge with what follows.
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
        "folder, take that out of the end of its chat_template.jinja, and train and serve the copy"
    )


def _opens_as_shown(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether an answer begins, in token ids, as the prompt ends after which a model writes it."""
    (prompt,) = _token_ids([[QUESTION]], tokenizer, generate=True)
    (whole,) = _token_ids([[QUESTION, ANSWER]], tokenizer)
    return whole[: len(prompt)] == prompt


def parting(first: Sequence[int], second: Sequence[int]) -> int:
    """The place of the first token in which two sequences differ."""
    shorter = min(len(first), len(second))
    return next((place for place in range(shorter) if first[place] != second[place]), shorter)
