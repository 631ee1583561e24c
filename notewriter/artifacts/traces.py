"""traces.jsonl: the rollout of each question, step by step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict

from notewriter.artifacts.reading import check_present, check_schema, record_of
from notewriter.ground import jsonl, typed
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Message, Sampling, SearchPart

TRACE_SCHEMA = "notewriter/trace/1"

REMEDY = "run the evaluation again"

OPENED_PAGES = "opened_pages"
"""The event of a retrieval that only opened a page by its title and is no search."""


class FoundPassage(TypedDict):
    """A retrieved passage."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class Retrieval:
    """A retrieval step.

    Args:
        query: what was searched for.
        top_k: how many passages were asked for.
        passages: ids and titles of the passages found, best first.
        seconds: how long the search took.
        words: total length of the passages' texts.
        facts: indices of the question's supporting facts that occur in the passages; None in traces of versions that
            did not record them.
        parts: what each part of a chain of retrievers did; None for a single index.
    """

    query: str
    top_k: int
    passages: list[FoundPassage]
    seconds: float
    words: int = 0
    facts: list[int] | None = None
    parts: list[SearchPart] | None = None
    kind: str = "retrieve"


@dataclass(frozen=True, slots=True)
class Generation:
    """A model call: its stage, the role of the model, the prompt and the reply."""

    stage: str
    role: str
    messages: list[Message]
    sampling: Sampling
    completion: Completion
    kind: str = "generate"

    @property
    def text(self) -> str:
        """The reply."""
        return self.completion.text


@dataclass(frozen=True, slots=True)
class Written:
    """A step whose text no model wrote."""

    stage: str
    role: str
    messages: list[Message]
    text: str


@dataclass(frozen=True, slots=True)
class GoldReply(Written):
    """A text written from the gold evidence in place of a completion; only in data construction."""

    kind: str = "gold"


@dataclass(frozen=True, slots=True)
class ControlReply(Written):
    """A note of a control, without a model call (`notewriter.rollouts.controls`)."""

    kind: str = "control"


Step = Retrieval | Generation | GoldReply | ControlReply


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """A trace on disk, where keys without a default must be present; see `Trace`."""

    question_id: str
    method: str
    steps: list[Step]
    note: str | None
    answer: str
    counts: dict[str, int]
    error: str
    retrieves: bool | None = None


@dataclass(slots=True)
class Trace:
    """The record of one question's rollout.

    Args:
        question_id: the question.
        method: the method's name.
        steps: retrievals and model calls, in order.
        note: the note the answer was written from; None for methods without notes.
        answer: the method's answer, empty after an error.
        counts: events that the method counted, by name.
        error: why the question has no answer, for example a prompt longer than the model's context.
        retrieves: whether the method retrieves; None where this was not recorded.
    """

    question_id: str
    method: str
    steps: list[Step] = field(default_factory=list)
    note: str | None = None
    answer: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    error: str = ""
    retrieves: bool | None = None

    @property
    def retrievals(self) -> list[Retrieval]:
        """The retrieval steps."""
        return [step for step in self.steps if isinstance(step, Retrieval)]

    @property
    def searches(self) -> int:
        """The number of searches: all retrievals but those that only opened a page."""
        return len(self.retrievals) - self.counts.get(OPENED_PAGES, 0)

    @property
    def generations(self) -> list[Generation]:
        """The model calls."""
        return [step for step in self.steps if isinstance(step, Generation)]

    def to_dict(self) -> dict[str, Any]:
        """The trace as a JSON-ready dictionary, with its schema."""
        return record_of(self, TRACE_SCHEMA)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], place: str = "trace") -> "Trace":
        """The trace in a record that `to_dict` wrote; `place` is its file and line, for errors.

        Raises:
            UserError: another schema, a missing key, or a value of the wrong type.
        """
        check_schema(record, TRACE_SCHEMA, place, REMEDY)
        whole = typed.read(record, TraceRecord, place, REMEDY)
        return cls(**{each.name: getattr(whole, each.name) for each in fields(whole)})


def read_traces(path: Path) -> Iterator[Trace]:
    """Stream the traces of a finished run, in the order of the file.

    Raises:
        UserError: the file is missing, a line is not a trace, or two lines are of one question; names the line.
    """
    check_present(path)
    seen = set()
    for number, record in jsonl.read(path):
        place = f"{path}:{number}"
        trace = Trace.from_dict(record, place)
        if trace.question_id in seen:
            raise UserError(f"{place}: duplicate question {trace.question_id!r}; remove one of the lines")
        seen.add(trace.question_id)
        yield trace
