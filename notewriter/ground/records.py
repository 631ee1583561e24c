"""The records that every package uses: messages, passages, questions, sampling parameters, completions."""

from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from annotated_types import Interval

from notewriter.ground.options import where_set


class Message(TypedDict):
    """One chat message; `role` is system, user or assistant, or another that the chat template knows (observation)."""

    role: str
    content: str


MAX_TOKENS = 10_000_000
"""Larger than any model's context; catches typing errors."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrievable piece of text; `id` is unique within its corpus."""

    id: str
    title: str
    text: str


class SearchPart(TypedDict):
    """The record of one part of a retriever in one search: its number of passages, the first ones' ids, seconds."""

    part: str
    found: int
    ids: list[str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answers; the first is the main one, the others are aliases.

    `supporting_ids` are the passages needed to answer it, `supporting_facts` the sentences in them that
    contain the evidence; both are empty if the dataset has no such annotation.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    supporting_ids: tuple[str, ...] = ()
    supporting_facts: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a completion.

    `max_tokens` bounds its length in tokens; it ends before any of the strings in `stop`. `json_schema` constrains
    it to JSON of that schema if the server supports that; replies are parsed leniently either way. `logprobs`
    requests the log-probability of each token, `alternatives` also those of these tokens at each position where they
    are among the 20 most likely.

    `raw` sends the messages' texts, joined, as one text without the model's chat template, and keeps special tokens in
    the reply. `continues` marks the reply as a part of one text, which further calls go on with
    (`notewriter.models.continuation`). `score_from` scores instead of asking: the last message, of the assistant, is a
    reply that is continued, and the log-probabilities are those of the prompt's tokens from that index on; a negative
    one counts from its end.
    """

    temperature: Annotated[float, Interval(ge=0)] = 0.1
    top_p: Annotated[float, Interval(gt=0, le=1)] = 0.9
    max_tokens: Annotated[int, Interval(ge=1, le=MAX_TOKENS)] = 1280
    stop: tuple[str, ...] = ()
    json_schema: dict[str, Any] | None = None
    logprobs: bool = False
    alternatives: tuple[str, ...] = field(default=(), metadata={"effect": where_set})
    raw: bool = field(default=False, metadata={"effect": where_set})
    continues: bool = field(default=False, metadata={"effect": where_set})
    score_from: int | None = field(default=None, metadata={"effect": where_set})


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply and its cost: prompt and completion tokens, prompt tokens cached by the server, seconds.

    `finish_reason` is `"stop"`, or `"length"` for a reply that was cut, at `max_tokens` or at the end of the context.
    Completion tokens are all that are billed, a thought's too. `tokens` are the reply's tokens with their natural
    log-probabilities if the sampling requested them, `alternatives` the natural log-probabilities of the sampling's
    alternatives at each position. `thought` is the text that a server's reasoning parser cut off, or that was cut
    within a thought begun by the chat template. `ended` is the clock's time at the reply, in seconds since 1970; 0
    where it is unknown.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    tokens: list[tuple[str, float]] | None = None
    alternatives: list[dict[str, float]] | None = None
    thought: str = ""
    ended: float = 0.0
