"""What passes between the parts: passages, questions, completions, and the trace a rollout leaves."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypedDict

from annotated_types import Interval


class Message(TypedDict):
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


class Found(TypedDict):
    """A passage that a retrieval found."""

    id: str
    title: str


TRACE_SCHEMA = "notewriter/trace/1"

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


@dataclass(frozen=True, slots=True)
class Retrieval:
    """A step that retrieved: the query, the ids and titles of what it found, best first, and their length in words.

    `facts` are the places of the question's supporting facts that stand in these passages.
    """

    query: str
    top_k: int
    passages: list[Found]
    seconds: float
    words: int = 0
    facts: list[int] = field(default_factory=list)
    kind: str = "retrieve"


@dataclass(frozen=True, slots=True)
class Generation:
    """A step that generated: the stage, the model's role, what it was sent and what it replied."""

    stage: str
    role: str
    messages: list[Message]
    sampling: Sampling
    completion: Completion
    kind: str = "generate"


@dataclass(frozen=True, slots=True)
class Gold:
    """A step where what the gold evidence would write took the place of a completion; only data construction has it."""

    stage: str
    role: str
    messages: list[Message]
    text: str
    kind: str = "gold"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """A trace as it is on disk, where every key has to be there; see `Trace`."""

    question_id: str
    method: str
    steps: list[Retrieval | Generation | Gold]
    note: str | None
    answer: str
    counts: dict[str, int]
    error: str


@dataclass(slots=True)
class Trace:
    """What one question's rollout did, step by step.

    `note` is the note the answer was written from (None for methods without one). `counts` are the events
    that the method counted. `error` says why a question has no answer, for example that its prompt was longer
    than the model's context.
    """

    question_id: str
    method: str
    steps: list[Retrieval | Generation | Gold] = field(default_factory=list)
    note: str | None = None
    answer: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The trace as a JSON-ready dictionary, with its schema."""
        return {"schema": TRACE_SCHEMA, **asdict(self)}
