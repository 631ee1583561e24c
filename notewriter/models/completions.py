"""A request for a completion, of a chat or of a raw text, and its reply: OpenAI's API with vLLM's extensions."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from notewriter.ground.lazy import Lazy
from notewriter.ground.records import Completion, Message, Sampling
from notewriter.ground.text import without_surrogates

if TYPE_CHECKING:
    import openai
    from openai.types import Completion as TextCompletion
    from openai.types.chat import ChatCompletion

    Reply = ChatCompletion | TextCompletion
else:
    openai = Lazy("openai")

CUSTOM_ID = "Idempotency-Key"
"""The header with a call's key in the response cache, which is its id in a batch."""

ALTERNATIVES = 20
"""Most likely tokens that are requested at each position; vLLM's and OpenAI's own limit."""

UNREADABLE = (ValueError, AttributeError, LookupError, TypeError, OverflowError, RecursionError)
"""What the library and `read` raise for truncated, empty or malformed replies."""


async def ask(
    api: openai.AsyncOpenAI,
    model: str,
    messages: list[Message],
    sampling: Sampling,
    names: Mapping[str, str],
    extra_body: Mapping[str, Any],
    headers: dict[str, str] | None = None,
) -> Reply:
    """The reply to a chat, or to the raw text of its messages (`Sampling.raw`).

    `names` are the parameters of the sampling that are sent -> their names at the endpoint.
    """
    values = {name: getattr(sampling, name) for name in names if name != "stop" or sampling.stop}
    own = {name: value for name, value in values.items() if names[name] == name}
    # What the library does not know.
    extra = {names[name]: value for name, value in values.items() if names[name] != name}
    if sampling.raw:
        extra["skip_special_tokens"] = False
        text: TextCompletion = await api.completions.create(
            model=model,
            prompt="".join(message["content"] for message in messages),
            logprobs=(ALTERNATIVES if sampling.alternatives else 1) if sampling.logprobs else openai.omit,
            extra_body=extra | {**extra_body},
            **own,
        )
        return text
    if messages[-1]["role"] == "assistant":
        # vLLM and SGLang continue the message, instead of opening another.
        extra |= {"add_generation_prompt": False, "continue_final_message": True}
    if sampling.score_from is not None:
        extra["prompt_logprobs"] = 0
    chat: ChatCompletion = await api.chat.completions.create(
        model=model,
        messages=messages,  # type: ignore[arg-type]
        logprobs=sampling.logprobs or openai.omit,
        top_logprobs=ALTERNATIVES if sampling.alternatives else openai.omit,
        response_format=_response_format(sampling.json_schema),
        extra_headers=headers,
        extra_body=extra | {**extra_body} or None,
        **own,
    )
    return chat


def tokens_of(reply: Reply) -> tuple[int, int]:
    """The prompt tokens and completion tokens that a reply cost.

    Raises:
        Any of `UNREADABLE`: it does not say.
    """
    if reply.usage is None:
        raise ValueError("no usage")
    return operator.index(reply.usage.prompt_tokens), operator.index(reply.usage.completion_tokens)


def read(reply: Any, sampling: Sampling, seconds: float) -> Completion:
    """The completion in a reply of any shape.

    Raises:
        Any of `UNREADABLE`: it is not a completion.
    """
    choice = reply.choices[0]
    prompt_tokens, completion_tokens = tokens_of(reply)
    tokens, likely = _scored(reply, sampling) if sampling.logprobs and choice.logprobs else (None, None)
    if choice.finish_reason is None:
        raise ValueError("no finish reason")
    details = reply.usage.prompt_tokens_details
    return Completion(
        text=without_surrogates((choice.text if sampling.raw else choice.message.content) or ""),
        finish_reason=without_surrogates(choice.finish_reason),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=operator.index(details.cached_tokens or 0) if details else 0,
        seconds=round(seconds, 3),
        tokens=tokens,
        alternatives=likely,
    )


def stopped(completion: Completion, stops: Sequence[str]) -> Completion:
    """A completion as if the server had ended it before the first of these strings."""
    end = min((place for stop in stops if (place := completion.text.find(stop)) >= 0), default=None)
    return completion if end is None else replace(completion, text=completion.text[:end], finish_reason="stop")


_Scored = tuple[list[tuple[str, float]] | None, list[dict[str, float]] | None]


def _scored(reply: Any, sampling: Sampling) -> _Scored:
    """Tokens with their log-probabilities, and the alternatives at each position; None for what the server lacks."""
    logprobs = reply.choices[0].logprobs
    if sampling.raw:
        pairs = list(zip(logprobs.tokens, logprobs.token_logprobs, strict=True))
        likely = [list(each.items()) for each in logprobs.top_logprobs or ()]
    elif logprobs.content is None:
        return None, None
    else:
        pairs = [(each.token, each.logprob) for each in logprobs.content]
        likely = [[(top.token, top.logprob) for top in each.top_logprobs] for each in logprobs.content]
    if sampling.score_from is not None:
        # vLLM's extension of the reply: for each token of the prompt a mapping of its id.
        prompt = getattr(reply, "prompt_logprobs", None)
        if prompt is None:
            return None, None
        scored = [next(iter(each.values())) for each in prompt[sampling.score_from :]]
        pairs = [(each["decoded_token"], each["logprob"]) for each in scored]
    tokens = [(without_surrogates(token), float(logprob)) for token, logprob in pairs]
    if not sampling.alternatives:
        return tokens, None
    wanted = set(sampling.alternatives)
    return tokens, [{token: float(logprob) for token, logprob in each if token in wanted} for each in likely]


def _response_format(schema: dict[str, Any] | None) -> Any:
    """A JSON schema in the format of OpenAI's API and vLLM."""
    if schema is None:
        return openai.omit
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}
