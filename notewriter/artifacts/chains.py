"""Chains, and replies from the gold evidence, on disk: train.parquet and dev.parquet in TRL's `messages` format."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict, cast

import pyarrow as pa

from notewriter.artifacts.pairs import MESSAGES
from notewriter.artifacts.parquet import BATCH, read_checked
from notewriter.ground.records import Message

SCHEMA = "notewriter/chain/1"


class _Chain(TypedDict):
    """The columns that training and the viewer need."""

    messages: list[Message]
    question_id: str


class Chain(_Chain, total=False):
    """A row: a chat in which the assistant's turns are the steps to learn.

    The messages are those that the method sends at evaluation. Of a teacher's chain: `f1`, 0 to 1, is that of its
    answer; `steps` counts thoughts with an action, the last one included. Of a reply from the gold evidence: its
    `stage` and `method`, and the passages per retrieval (`top_k`).
    """

    schema: str
    dataset: str
    f1: float
    steps: int
    stage: str
    method: str
    top_k: int | None


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
"""The columns of a teacher's chains."""

GOLD_COLUMNS = pa.schema(
    [
        ("schema", pa.string()),
        ("messages", MESSAGES),
        ("stage", pa.string()),
        ("method", pa.string()),
        ("question_id", pa.string()),
        ("dataset", pa.string()),
        ("top_k", pa.int64()),
    ]
)
"""The columns of replies from the gold evidence."""


def read_chains(path: Path, batch: int = BATCH) -> Iterator[Chain]:
    """Stream the rows of a file of chains, `batch` rows in memory.

    Raises:
        UserError: as `read_checked`.
    """
    return (cast(Chain, row) for row in read_checked(path, _Chain, batch))
