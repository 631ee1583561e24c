"""Dialects: what an endpoint calls the sampling parameters, and which of them it refuses.

Most servers of open models take all of `PARAMETERS`. Those of others are known by the model's name (`KNOWN`), learnt
from the endpoint's own refusal (`learn`), or set by the user (`parameters` of an endpoint).
"""

import re
from collections.abc import Mapping

Dialect = Mapping[str, str | None]
"""Parameter -> its name at the endpoint, or None if it is not sent."""

PARAMETERS = ("temperature", "top_p", "max_tokens", "stop")
"""The parameters that can be renamed or left out."""

KNOWN: dict[str, Dialect] = {
    # platform.openai.com/docs/guides/reasoning; the chat models of these families sample.
    r"(gpt-5(?!.*chat)|o[1-9])(?![a-z0-9])": {
        "max_tokens": "max_completion_tokens",
        "temperature": None,
        "top_p": None,
        "stop": None,
    },
    # "`temperature` is deprecated for this model": from Opus 4.7 on.
    r"claude-(opus-4[-.][78]|fable-5)(?!\d)": {"temperature": None, "top_p": None},
    # "`temperature` and `top_p` cannot both be specified for this model": from Opus 4.1 on.
    r"claude-(opus-4[-.][156]|(sonnet|haiku)-4[-.][56])(?!\d)": {"top_p": None},
}
"""Pattern of models' names -> their dialect."""

_REFUSED = re.compile(
    r"unsupported|not support|deprecated|not permitted|not allowed|unknown|unrecognized|unexpected", re.IGNORECASE
)
# The value is to be corrected, by whoever set it.
_OUT_OF_RANGE = re.compile(r"\b(range|between|at (most|least)|must be|too (large|small|long))\b", re.IGNORECASE)
_INSTEAD = re.compile(r"\buse [`'\"]?(\w*tokens\w*)[`'\"]? instead", re.IGNORECASE)
_EXCLUSIVE = re.compile(r"\bboth\b|\bonly one\b", re.IGNORECASE)

_TOO_LONG = re.compile(r"context (length|window)|too long|longer than|exceeds? (the )?(max|limit)", re.IGNORECASE)


def is_about_length(refusal: str) -> bool:
    """Whether an endpoint refused a prompt for its length, which says nothing about other prompts."""
    return bool(_TOO_LONG.search(refusal))


def known_dialect(model: str) -> Dialect:
    """The dialect of a model by its name, which may follow a provider's (`openai/gpt-5`); empty if none is known."""
    return next((dialect for name, dialect in KNOWN.items() if re.search(rf"(?:^|[/.]){name}", model)), {})


def learn(refusal: str, sent: Mapping[str, str]) -> Dialect:
    """What a refusal says about the parameters; empty if it is about something else.

    Understands the wordings of OpenAI ("Unsupported parameter: 'max_tokens' ... Use 'max_completion_tokens' instead")
    and Anthropic ("`temperature` and `top_p` cannot both be specified"). `max_tokens` bounds what a call may cost, so
    it is renamed but never left out.

    Args:
        refusal: the endpoint's message.
        sent: the parameters of the request -> their names in it.
    """
    mentions = {each: re.search(_mention(name), refusal) for each, name in sent.items()}
    mentioned = sorted((match.start(), each) for each, match in mentions.items() if match)
    if _EXCLUSIVE.search(refusal) and {"temperature", "top_p"} <= {each for _, each in mentioned}:
        return {"top_p": None}
    if not mentioned or not _REFUSED.search(refusal) or _OUT_OF_RANGE.search(refusal):
        return {}
    parameter = mentioned[0][1]
    if parameter != "max_tokens":
        return {parameter: None}
    instead = _INSTEAD.search(refusal)
    return {parameter: instead[1]} if instead else {}


def _mention(name: str) -> str:
    """A pattern that finds a parameter's name; one that is a word of English too, only in quotes."""
    return rf"[`'\"]{name}[`'\"]" if name == "stop" else rf"(?<!\w){name}(?!\w)"


def in_words(dialect: Dialect) -> str:
    """`max_tokens is sent as max_completion_tokens, temperature and top_p are left out`, for the log."""
    renamed = [f"{name} is sent as {other}" for name, other in dialect.items() if other is not None]
    omitted = [name for name, other in dialect.items() if other is None]
    return ", ".join([*renamed, *([f"{', '.join(omitted)} left out"] if omitted else [])])
