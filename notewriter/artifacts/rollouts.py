"""rollouts.jsonl: the journal of data construction, one line per finished question."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, TypeVar, cast

from notewriter.artifacts.chains import Conversation
from notewriter.artifacts.journal import finished
from notewriter.artifacts.pairs import Pair
from notewriter.artifacts.traces import TraceRecord
from notewriter.ground.records import Message, Question

R = TypeVar("R")

JOURNAL = "rollouts.jsonl"

if TYPE_CHECKING:
    TraceObject = dict[str, Any]
else:
    TraceObject = TraceRecord
"""A trace as a JSON object: checked against `TraceRecord` when a journal is opened, and not converted."""


class Drop(TypedDict):
    """A prompt without a pair, and the reason."""

    stage: str
    reason: str


class JudgeAgreement(TypedDict):
    """Whether a judge that was asked in two orders named the same candidates."""

    stage: str
    agreed: bool


class UnreadableReplies(TypedDict):
    """The number of a judge's replies at one prompt that could not be parsed."""

    stage: str
    replies: int


class StageUsage(TypedDict):
    """The calls and tokens of a stage, played by a role."""

    stage: str
    role: str
    tokens: dict[str, int]


class PairsRollout(TypedDict):
    """The yield and cost of one question's sampling rollouts.

    `usage` counts every distinct call: candidates, judges, and answers that candidates were rolled forward to.
    `unreadable` is missing in journals of older versions. `refusals`, where there are some, are the endpoint's reasons
    for refusing judges' requests.
    """

    question_id: str
    rows: list[Pair]
    drops: list[Drop]
    agreements: list[JudgeAgreement]
    usage: list[StageUsage]
    traces: list[TraceObject]
    unreadable: NotRequired[list[UnreadableReplies]]
    refusals: NotRequired[list[str]]


class GoldRollout(TypedDict):
    """The gold evidence's replies for one question: rows without `dataset`, and the prompts without a reply.

    `usage` counts every distinct call of the model, which played the other stages and answered these prompts.
    """

    question_id: str
    rows: list[Conversation]
    drops: list[Drop]
    usage: list[StageUsage]
    traces: list[TraceObject]


class ChainRollout(TypedDict):
    """The chain of one question: the chat after the instruction, and the trace, whose answer is the chain's."""

    question_id: str
    turns: list[Message]
    trace: TraceObject


def read_rollouts(journal: Path, questions: Sequence[Question], kind: type[R]) -> Iterator[R]:
    """Stream a journal, whose records are of that kind, in the questions' order; `check_journal` has checked it."""
    return (cast(R, record) for record in finished(journal, questions))


def steps_of(record: ChainRollout) -> int:
    """The number of a chain's steps, as its method counted them; 0 in a record without the count."""
    return int(record["trace"]["counts"].get("steps", 0))
