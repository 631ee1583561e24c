"""A request for a completion, of a chat or of a raw text, and its reply: OpenAI's API with vLLM's extensions."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from notewriter.ground.lazy import Lazy
from notewriter.ground.records import Completion, Message, Sampling
from notewriter.ground.text import without_surrogates
from notewriter.models.connection import UnreadableReply
from notewriter.models.prices import tokens_in
from notewriter.models.thoughts import after_thinking

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
"""The errors that the library and `read` raise for truncated, empty or malformed replies."""


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


_STOPPED = ("stop", "stop_sequence", "eos", "eos_token", "end_turn", "complete")
_CUT = (
    "length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded", "repetition",
    "continuation",
)  # fmt: skip
_BROKEN = (
    "abort", "aborted", "cancelled", "error", "network_error", "insufficient_system_resource", "load", "unload",
    "timeout", "malformed_response",
)  # fmt: skip
_FILTERED = (
    "content_filter", "content_filtered", "refusal", "safety", "recitation", "blocklist", "prohibited_content",
    "spii", "language", "sensitive", "guardrail_intervened", "escalation", "model_armor",
    "image_safety", "image_prohibited_content", "image_recitation",
)  # fmt: skip
_CALLS = (
    "tool_calls", "tool_call", "tool_use", "function_call", "malformed_function_call", "function_call_filter",
    "unexpected_tool_call", "too_many_tool_calls",
)  # fmt: skip

ROUNDING, IMPOSSIBLE = 0.01, -9999.0
"""The greatest log-probability that is taken for 0, and the least: vLLM's for the impossible."""


class NoAnswer(Exception):
    """A whole reply that is no answer, such as the call of a tool or a thought alone; another try is not worth it.

    `of_prompt`: this prompt is the reason, not the use of the endpoint.
    """

    def __init__(self, message: str, of_prompt: bool = False) -> None:
        super().__init__(message)
        self.of_prompt = of_prompt


class Unfinished(UnreadableReply):
    """A reply that the server broke off; another try may end."""


def tokens_of(reply: Reply, messages: Sequence[Message]) -> tuple[int, int]:
    """The prompt tokens and completion tokens that a reply to messages cost.

    Some providers leave a model's thoughts out of `completion_tokens` and bill them all the same: they are in the
    total, or in `reasoning_tokens`. What a server does not count is estimated from the texts (`BYTES_A_TOKEN`).

    Raises:
        NoAnswer, Unfinished: it is an error that was sent as a reply.
        Any of `UNREADABLE`: it is no reply, or its numbers are none.
    """
    _check_error(reply)
    prompt, completion, total = (
        getattr(reply.usage, name, None) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    if completion is None and total is not None and prompt is not None:
        # Gemini leaves out the tokens of a reply that has none.
        completion = total - prompt
    if prompt is None:
        prompt = tokens_in("".join(message["content"] for message in messages))
    if completion is None:
        completion = tokens_in(_words_of(reply))
    prompt, completion, thoughts = _count(prompt), _count(completion), _thoughts_of(reply.usage)
    beside = completion + thoughts if thoughts > completion else 0
    return prompt, max(completion, beside, _count(total or 0) - prompt)


def counts_tokens(reply: Reply) -> bool:
    """Whether a server counts the tokens of a reply, so that `tokens_of` is no estimate."""
    return getattr(reply.usage, "prompt_tokens", None) is not None


def _words_of(reply: Reply) -> str:
    """All words in a reply, its thought's too."""
    choice = next(iter(reply.choices or ()), None)
    message = getattr(choice, "message", None)
    named = [getattr(choice, "text", None), getattr(message, "content", None)]
    return "".join(map(_words, named)) + _words(getattr(message, kept_apart(reply) or "", None))


def read(reply: Any, messages: Sequence[Message], sampling: Sampling, seconds: float) -> Completion:
    """The completion in a reply of any shape to messages: the only reader of replies, also of those of batch APIs.

    Its finish reason is `stop` or `length`, whatever the server's word for it. Its text is empty only where a thought
    was cut, where a stop string may have ended it, or where the model said nothing at all.

    Raises:
        NoAnswer: a filter, a refusal, a call of a tool, a thought without a reply, an unknown finish reason.
        Unfinished: the server broke it off, or sent an error in its place.
        Any of `UNREADABLE`: it is not a completion.
    """
    prompt_tokens, completion_tokens = tokens_of(reply, messages)
    if not reply.choices:
        raise Unfinished("a reply without choices")
    choice = reply.choices[0]
    message = None if sampling.raw else choice.message
    text, thought = _parts(choice.text if message is None else message.content)
    if message is not None:
        thought = thought or _words(getattr(message, kept_apart(reply) or "", None))
        if thought and _REMNANT.fullmatch(text):
            text = ""
        _check_refusal(message, choice)
    finish_reason = _finish_reason(choice.finish_reason)
    if finish_reason == "stop" and not text.strip() and not sampling.stop and (thought or _thoughts_of(reply.usage)):
        raise NoAnswer(
            f"the reply has no content, only reasoning ({completion_tokens} tokens): the model said nothing after its "
            "thought, or the server's reasoning parser took the reply for one; start the server without its reasoning "
            "parser, or with the chat template's variables that the model was trained with"
        )
    tokens, likely = _scored(reply, sampling) if sampling.logprobs and choice.logprobs else (None, None)
    return Completion(
        text=without_surrogates(text),
        finish_reason=finish_reason,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=_cached(reply.usage),
        seconds=round(seconds, 3),
        tokens=tokens,
        alternatives=likely,
        thought=without_surrogates(thought),
        ended=round(time.time(), 3),
    )


_REMNANT = re.compile(r"\s*<?/?think>\s*")
"""The rest of the end of a thought that a reasoning parser leaves where a stop string cut it."""


def kept_apart(reply: Any) -> str | None:
    """The field of a message in which a server has put the thought that it cut off; None where there is none."""
    choice = next(iter(getattr(reply, "choices", None) or ()), None)
    message = getattr(choice, "message", None)
    return next((name for name in _THOUGHTS if _words(getattr(message, name, None))), None)


def is_finished(completion: Completion) -> bool:
    """Whether a stored completion is an answer: older versions also stored those that a filter or an error ended."""
    return completion.finish_reason in (*_STOPPED, *_CUT)


def _check_error(reply: Any) -> None:
    """Refuse an error that came with a good HTTP status, as gateways send it for the provider behind them."""
    choice = reply.choices[0] if isinstance(getattr(reply, "choices", None), list) and reply.choices else None
    error = getattr(reply, "error", None) or getattr(choice, "error", None)
    if not error and getattr(reply, "choices", None) is None and getattr(reply, "usage", None) is None:
        # Of a form of its own.
        fields = getattr(reply, "model_extra", None) or {}
        error = fields if any(_words(fields.get(name)) for name in _OF_ERRORS) else None
    if not error:
        return
    code = error.get("code") if isinstance(error, dict) else None
    message = f"an error in place of a reply: {_words(error) or error}"
    if str(code) in ("400", "401", "402", "403", "404", "413", "422"):
        raise NoAnswer(message)
    raise Unfinished(message)


_OF_ERRORS = ("message", "msg", "description", "detail")


def _check_refusal(message: Any, choice: Any) -> None:
    """Refuse a message without an answer, such as a refusal or the call of a tool."""
    if refusal := _words(getattr(message, "refusal", None)):
        raise NoAnswer(f"the model refuses: {refusal}", of_prompt=True)
    if getattr(message, "tool_calls", None) or getattr(message, "function_call", None):
        raise NoAnswer(
            f"the reply calls a tool (finish_reason {choice.finish_reason!r}); none was offered to the model"
        )


def _finish_reason(said: Any) -> str:
    """`stop` or `length`, whatever the server's word; before a colon (Gemini's `content_filter: RECITATION`)."""
    if not said:
        raise Unfinished("a reply without a finish reason")
    reason = said.lower().replace("-", "_").partition(":")[0].strip()
    if reason in _STOPPED:
        return "stop"
    if reason in _CUT:
        return "length"
    ended = f"the reply ended with finish_reason {without_surrogates(said)[:100]!r}"
    if reason in _BROKEN:
        raise Unfinished(ended)
    if reason in _FILTERED:
        raise NoAnswer(f"{ended}: a filter of the provider stopped it", of_prompt=True)
    raise NoAnswer(f"{ended}, the call of a tool" if reason in _CALLS else f"{ended}, which is not known")


_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks")
"""Where servers put the thought that they cut off a message."""

_SPOKEN, _THOUGHT_PARTS = ("text", "output_text"), ("thinking", "reasoning", "thought", "reasoning_content")
_CITED = "reference"
"""The type of Mistral's parts with the numbers of the sources of the text before them, and no words."""


def _parts(content: Any) -> tuple[str, str]:
    """The text and the thought of a content, which is a text, nothing, or a list of typed parts.

    Raises:
        NoAnswer: it has a part of another type.
    """
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise TypeError(f"content is {type(content).__name__}, not a text")
    spoken, thoughts = [], []
    for part in content:
        kind = "text" if isinstance(part, str) else part["type"]
        if kind in _SPOKEN:
            spoken.append(_words(part))
        elif kind in _THOUGHT_PARTS:
            thoughts.append(_words(part))
        elif kind != _CITED:
            raise NoAnswer(f"the reply has a part of type {kind!r}: {_words(part)}", of_prompt=kind == "refusal")
    return "".join(spoken), "".join(thoughts)


def _words(value: Any) -> str:
    """The words in a value that servers write as a text, or as lists or mappings of texts; empty without any."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_words, value))
    if isinstance(value, dict):
        keys = ("text", "thinking", "reasoning", "summary", "content", "refusal", *_OF_ERRORS)
        return next(filter(None, (_words(value.get(key)) for key in keys)), "")
    return ""


def _thoughts_of(usage: Any) -> int:
    """The tokens of thoughts in a usage."""
    details = getattr(usage, "completion_tokens_details", None)
    return _count(getattr(details, "reasoning_tokens", None) or getattr(usage, "reasoning_tokens", None) or 0)


def _cached(usage: Any) -> int:
    """The prompt tokens that the server had in its cache, by OpenAI's, DeepSeek's or Moonshot's name."""
    named = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return _count(
        named or getattr(usage, "prompt_cache_hit_tokens", None) or getattr(usage, "cached_tokens", None) or 0
    )


def _count(value: Any) -> int:
    """A number of tokens; some servers write it as 12.0."""
    number = operator.index(int(value) if isinstance(value, float) and value.is_integer() else value)
    if number < 0:
        raise ValueError(f"{number} tokens")
    return number


def stopped(completion: Completion, sampling: Sampling) -> Completion:
    """A completion as if the server had ended it before the first stop string, after any thought.

    A text that is continued is ended within a thought, too.
    """
    text, said = completion.text, after_thinking(completion.text)
    begin = 0 if sampling.continues else text.rfind(said) if said else len(text)
    end = min((place for stop in sampling.stop if (place := text.find(stop, begin)) >= 0), default=None)
    return completion if end is None else replace(completion, text=text[:end], finish_reason="stop")


_Scored = tuple[list[tuple[str, float]] | None, list[dict[str, float]] | None]


def _scored(reply: Any, sampling: Sampling) -> _Scored:
    """Tokens with their log-probabilities, and the alternatives at each position; None for missing ones."""
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
    tokens = [(without_surrogates(token), _log(logprob)) for token, logprob in pairs]
    if not sampling.alternatives:
        return tokens, None
    wanted = set(sampling.alternatives)
    return tokens, [{token: _log(logprob) for token, logprob in each if token in wanted} for each in likely]


def _log(value: Any) -> float:
    """A log-probability, with 0 for rounding above it and vLLM's value for that of the impossible."""
    if not value <= ROUNDING:
        raise ValueError(f"the log-probability {value!r}")
    return float(min(max(value, IMPOSSIBLE), 0.0))


def _response_format(schema: dict[str, Any] | None) -> Any:
    """A JSON schema in the format of OpenAI's API and vLLM."""
    if schema is None:
        return openai.omit
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}
