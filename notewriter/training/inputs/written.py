"""Checks that a chat template writes all that a row gives it, and that the row has none of its special tokens."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from notewriter.ground.errors import UserError
from notewriter.ground.text import texts_in
from notewriter.models import chat_template
from notewriter.training.inputs import rendering
from notewriter.training.inputs.forms import WORDS, Message

REMEDIES = {
    **dict.fromkeys(WORDS, "put it into the content in the form that the model is to write"),
    "tools": "give them in the column tools",
}
"""Keys of a message that a template has to write -> the remedy if it does not."""

SYSTEM = {"role": "system", "content": "the"}


def own_tokens(tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> tuple[str, ...]:
    """The special tokens that the template puts around messages, and those that begin a sequence or end a turn."""
    special = {number: token.content for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    turns = [rendering.QUESTION, rendering.ANSWER, rendering.QUESTION]
    ids: set[int | None] = {*stops, tokenizer.bos_token_id}
    for messages in ([SYSTEM, *turns], turns):
        try:
            (frame,) = rendering.render([messages], tokenizer, generate=True)
        except (jinja2.TemplateError, UserError):
            # Some templates refuse or leave out the system role; their other faults are reported with the first row.
            continue
        ids |= set(frame)
        break
    return tuple(sorted(special[number] for number in ids if number in special and number != tokenizer.unk_token_id))


def check(
    messages: Sequence[Message],
    trained: Collection[int],
    given: Mapping[str, Any],
    column: Callable[[int], str],
    tokenizer: PreTrainedTokenizerBase,
    own: Collection[str],
) -> list[str]:
    """The keys of a conversation's messages that the template does not write, to be named once.

    Args:
        messages: the conversation.
        trained: the numbers of the messages that are trained.
        given: tools and variables of the row.
        column: the column that a message is from, by its number.
        tokenizer: has the template.
        own: `own_tokens`.

    Raises:
        UserError: a text holds a token of `own`, a variable is unknown, or tools, calls or a trained thought are not
            written.
    """
    for number, message in enumerate(messages):
        text = "\n".join(texts_in(message))
        if held := [token for token in own if token in text]:
            raise UserError(
                f"{column(number)} holds {min(held, key=text.index)} in a text of the {message['role']}: it is a "
                "special token of the model's chat template; give messages instead of rendered text, or remove the "
                "token"
            )
    variables = {name: value for name, value in given.items() if name != "tools"}
    if variables:
        chat_template.check_settings(variables)
        template = tokenizer.get_chat_template(tools=given.get("tools"))
        chat_template.check_known(template, variables, tokenizer.name_or_path)
    keys = {key for message in messages for key in message} - {"role", "content"}
    if given.get("tools") and _same(messages, messages, tokenizer, given, variables):
        raise UserError("tools: the model's chat template does not write them; remove the column, or use another model")
    for number, message in enumerate(messages):
        shown = messages[: number + 1]
        for key in (
            key for key in REMEDIES if key in message and (number in trained or key in ("tool_calls", "tools"))
        ):
            if _same(shown, [*shown[:-1], _without(message, key)], tokenizer, given, given):
                raise UserError(
                    f"{column(number)}: the model's chat template does not write {key} of a message; {REMEDIES[key]}, "
                    "or use another model"
                )
        if message.get("content", "") is None and _writes_none(shown, tokenizer, given):
            raise UserError(
                f"{column(number)}: the model's chat template writes a content of null as the word None; give an "
                "empty text"
            )
    return [
        f"{key} of messages"
        for key in sorted(keys)
        if _same(messages, [_without(message, key) for message in messages], tokenizer, given, given)
    ]


def _without(message: Message, key: str) -> Message:
    return {name: value for name, value in message.items() if name != key}


def _same(
    first: Sequence[Message],
    second: Sequence[Message],
    tokenizer: PreTrainedTokenizerBase,
    given: Mapping[str, Any],
    second_given: Mapping[str, Any],
) -> bool:
    """Whether two conversations are written alike; one that the template refuses is like no other."""
    one = _written(first, tokenizer, given)
    return one is not None and one == _written(second, tokenizer, second_given)


def _writes_none(messages: Sequence[Message], tokenizer: PreTrainedTokenizerBase, given: Mapping[str, Any]) -> bool:
    whole = _written(messages, tokenizer, given)
    empty = _written([*messages[:-1], {**messages[-1], "content": ""}], tokenizer, given)
    return whole is not None and empty is not None and whole.count("None") > empty.count("None")


def _written(messages: Sequence[Message], tokenizer: PreTrainedTokenizerBase, given: Mapping[str, Any]) -> str | None:
    """The text of a conversation; None if the template refuses it."""
    try:
        (ids,) = rendering.render([messages], tokenizer, given=[given])
    except jinja2.TemplateError:
        return None
    return rendering.text_of(ids, tokenizer)
