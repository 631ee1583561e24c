"""Thoughts within a model's replies, by the marks of today's models."""

import re

_TAG = r"(?:[\w:|-]*think[\w:|-]*|thoughts?|reasoning|reflection)"

_OPENING = re.compile(
    rf"\s*(?:<{_TAG}>|\[THINK\]|\u25c1think\u25b7"
    # Command A, OpenThinker, LFM and Apertus; Gemma 4; Kimi K3.
    r"|<\|(?:START_THINKING|begin_of_thought|think(?:ing)?_start|inner_prefix)\|>|<\|channel>thought"
    r"|<\|open\|>think<\|sep\|>"
    # Channels: gpt-oss, also where a server left out the special tokens; Muse.
    r"|(?:<\|start\|>assistant\s*)?(?:<\|channel\|>(?:analysis|commentary)|to=self<\|message\|>)"
    r"|(?-i:analysis|commentary)(?=(?-i:[A-Z]))|here(?:'s| is) my thought process:)",
    re.IGNORECASE,
)
"""The marks that begin a thought at the start of a reply."""

_CLOSING = re.compile(
    rf"</{_TAG}>|\[/THINK\]|\u25c1/think\u25b7"
    r"|<\|(?:END_THINKING|end_of_thought|think(?:ing)?_end|inner_suffix)\|>|<channel\|>"
    r"|<\|close\|>think<\|sep\|>"
    r"|<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>|to=user<\|message\|>",
    re.IGNORECASE,
)
"""The marks that end a thought anywhere: the chat template may have begun it in the prompt."""

_CLOSING_IN_WORDS = re.compile(r"assistant(?:commentary.*)?final|here(?:'s| is) my response:", re.IGNORECASE)
"""Words that end a thought which one of `_OPENING` began."""

_WRAPPED = re.compile(
    r"\s*(?:<(response|answer|output)>|<\|(?:START_RESPONSE|begin_of_solution)\|>|<\|open\|>response<\|sep\|>)"
    r"(.*?)(?:</\1>|<\|(?:END_RESPONSE|end_of_solution)\|>|<\|close\|>\w+<\|sep\|>)*",
    re.DOTALL | re.IGNORECASE,
)
"""An answer in marks of its own, as some models write it after a thought."""

_END_OF_TURN = re.compile(r"(?:<\|(?:return|end|eot|eom)\|>\s*)+\Z")


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends within a thought, which its chat template has begun for the model."""
    *_, opening = [None, *_OPENING.finditer(prompt)]
    return opening is not None and not prompt[opening.end() :].strip()


def is_unmarked(text: str) -> bool:
    """Whether a reply has no mark of a thought, neither its beginning nor its end."""
    return without_thinking(text) == text and not _OPENING.match(text)


def ends_opened_thought(text: str) -> bool:
    """Whether a reply ends a thought that it did not begin: its chat template has."""
    return without_thinking(text) != text and not _OPENING.match(text)


def without_thinking(text: str) -> str:
    """A reply without a reasoning model's thinking, in the marks of today's models.

    If the chat template puts the beginning of the thought into the prompt, only its end appears.
    """
    *_, end = [None, *_CLOSING.finditer(text)]
    if end is None and _OPENING.match(text):
        end = _CLOSING_IN_WORDS.search(text)
    if end is None:
        return text
    reply = _END_OF_TURN.sub("", text[end.end() :])
    wrapped = _WRAPPED.fullmatch(reply.rstrip())
    return wrapped[2] if wrapped else reply


def after_thinking(text: str) -> str:
    """The reply after any thinking; empty if it was cut before the thinking ended."""
    reply = without_thinking(text)
    return "" if _OPENING.match(reply) else reply
