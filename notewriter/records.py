"""What every part knows: messages, passages, questions, how completions are sampled, completions."""

from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from annotated_types import Interval


class Message(TypedDict):
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


MOST_TOKENS = 10_000_000
"""More than any model's context; a number beyond it is a slip."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable piece of text; `id` is unique in its corpus."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answers (the first is the main one, the others are aliases).

    `supporting_ids` name the passages that are needed to answer it, `supporting_facts` hold the
    sentences in them that carry the evidence; both are empty where a dataset does not tell.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    supporting_ids: tuple[str, ...] = ()
    supporting_facts: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a completion is drawn.

    `max_tokens` bounds its length in tokens. It ends before any of the texts in `stop`. `json_schema` binds
    it to JSON of that schema where the server can, and is a hint elsewhere: what comes back is parsed
    tolerantly all the same. `logprobs` asks for the log-probability of each token.
    """

    temperature: Annotated[float, Interval(ge=0)] = 0.1
    top_p: Annotated[float, Interval(gt=0, le=1)] = 0.9
    max_tokens: Annotated[int, Interval(ge=1, le=MOST_TOKENS)] = 1280
    stop: tuple[str, ...] = ()
    json_schema: dict[str, Any] | None = None
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply with its cost: tokens in and out, prompt tokens the server had cached, seconds.

    `finish_reason` is the server's word: `"length"` means the reply was cut at `max_tokens`. `tokens` are
    the reply's tokens with their natural log-probabilities where the sampling asked for them.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    tokens: list[tuple[str, float]] | None = None
