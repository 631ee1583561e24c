"""Chains on disk: train.parquet and dev.parquet in TRL's `messages` format."""

from typing import TypedDict

import pyarrow as pa

from notewriter.artifacts.pairs import MESSAGES
from notewriter.records import Message

SCHEMA = "notewriter/chain/1"

REQUIRED = ("messages", "question_id")
"""The columns that training and the viewer need."""


class Chain(TypedDict):
    """A row: a chat in which the assistant's turns are the steps to learn.

    The messages are those that `rearag` sends at evaluation. `f1`, 0 to 1, is that of the chain's answer; `steps`
    counts thoughts with an action, the last one included.
    """

    schema: str
    messages: list[Message]
    question_id: str
    dataset: str
    f1: float
    steps: int


COLUMNS = pa.schema(
    [
        ("schema", pa.string()),
        ("messages", MESSAGES),
        ("question_id", pa.string()),
        ("dataset", pa.string()),
        ("f1", pa.float64()),
        ("steps", pa.int64()),
    ]
)
"""The columns of `Chain`."""
