"""Traces: what the rollout of one question did, step by step."""

from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

from notewriter.records import Completion, Message, Sampling


class Found(TypedDict):
    """A passage that a retrieval found."""

    id: str
    title: str


TRACE_SCHEMA = "notewriter/trace/1"


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
