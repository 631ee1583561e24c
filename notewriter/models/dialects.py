"""Dialects: an endpoint's names of the sampling parameters, and those that it does not take.

Most servers of open models take all of `PARAMETERS`. Those of others are known by the model's name (`KNOWN`) or set by
the user (`parameters` of an endpoint).
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


NEUTRAL: Mapping[str, float] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_k": -1,
    "min_p": 0.0,
}
"""Sampling parameters without an option here -> the values at which they have no effect in vLLM and SGLang.

Where a request does not set them, a server takes the values of the model's generation_config.json. A `top_k` of 0 is
refused by SGLang and older versions of vLLM.
"""

NEUTRAL_AT: dict[str, Mapping[str, float]] = {
    "vllm": NEUTRAL,
    "sglang": NEUTRAL,
    # Its own are top_k 40 and min_p 0.05, or what the model's file says.
    "llamacpp": {"top_k": -1, "min_p": 0.0, "repeat_penalty": 1.0},
}
"""Owner of a server's models -> the values to send, so that sampling follows the options alone."""

NOT_TAKEN_BY = {"library": "Ollama", "organization_owner": "LM Studio"}
"""Owner of a server's models -> the name of a server with values of its own that requests cannot all change."""


def known_dialect(model: str) -> Dialect:
    """The dialect of a model by its name, which may follow a provider's (`openai/gpt-5`); empty if none is known."""
    return next((dialect for name, dialect in KNOWN.items() if re.search(rf"(?:^|[/.]){name}", model)), {})


def in_words(dialect: Dialect) -> str:
    """`max_tokens is sent as max_completion_tokens, temperature and top_p are left out`, for the log."""
    renamed = [f"{name} is sent as {other}" for name, other in dialect.items() if other is not None]
    omitted = [name for name, other in dialect.items() if other is None]
    return ", ".join([*renamed, *([f"{', '.join(omitted)} left out"] if omitted else [])])
