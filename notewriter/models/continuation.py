"""A text that a model writes over several calls: each prompt is the one before, to the letter, and the text added.

Chat templates do not give an assistant's message back as it was written: they put an empty thought before it, leave out
its opening mark, or cut white space at its end. So the text goes on as a raw prompt, behind the server's own prompt of
the messages before it, which vLLM returns (`return_prompt_text`). That also bypasses a server's reasoning parser: a
first part whose thoughts came apart is written again as a raw prompt.

Another server is asked to continue the assistant's message (`continue_final_message`), as SGLang does. llama.cpp's
does so unasked and returns the message again, which is cut off.
"""

from dataclasses import replace
from typing import Any

from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Message, Sampling
from notewriter.models.completions import kept_apart

FIRST = {"return_prompt_text": True, "skip_special_tokens": False}
"""vLLM's parameters of a chat at which the reply has the prompt's text, and its own text whole."""

AS_IT_IS = {"add_special_tokens": False}
"""vLLM's parameter of a raw prompt, whose first special token is in its text already."""


def parts(messages: list[Message]) -> tuple[list[Message], str]:
    """The messages of a chat, and the text of the assistant's message after them, which is to be continued."""
    if messages[-1]["role"] != "assistant":
        return messages, ""
    return messages[:-1], messages[-1]["content"]


def opening_of(reply: Any) -> str | None:
    """The prompt that a server made of a chat's messages; None if it does not return it."""
    text = getattr(reply, "prompt_text", None)
    return text if isinstance(text, str) and text else None


def as_raw(opening: str, text: str, sampling: Sampling) -> tuple[list[Message], Sampling]:
    """The raw prompt of a text after the server's rendering of the chat before it, and its sampling."""
    return [{"role": "user", "content": opening + text}], replace(sampling, raw=True, continues=False)


def check_whole(reply: Any, address: str) -> None:
    """Check that a server has not taken the thoughts out of a text that is to be continued.

    Raises:
        UserError: it has.
    """
    if name := kept_apart(reply):
        raise UserError(
            f"{address}: returns the model's thoughts apart (`{name}`), and this method continues the text that they "
            "belong to; start the server without a reasoning parser, or use a vLLM that returns the text of prompts "
            "(return_prompt_text)"
        )


def new_part(completion: Completion, text: str) -> Completion:
    """The reply without the text that it continues, where the server returns it again."""
    return replace(completion, text=completion.text.removeprefix(text))
