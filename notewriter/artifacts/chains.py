"""Chains, and replies from the gold evidence, on disk: train.parquet and dev.parquet in TRL's `messages` format."""

from collections.abc import Iterator
from pathlib import Path
from typing import Required, TypedDict

from notewriter.artifacts.pairs import Messages
from notewriter.artifacts.parquet import BATCH, columns_of, read_checked

SCHEMA = "notewriter/chain/1"


class Conversation(TypedDict, total=False):
    """A row: a chat in which the assistant's turns are the steps to learn.

    The messages are those that the method sends at evaluation. Of a teacher's chain: `f1`, 0 to 1, is that of its
    answer; `steps` counts thoughts with an action, the last one included. Of a reply from the gold evidence: its
    `stage` and `method`, and the passages per retrieval (`top_k`).
    """

    schema: str | None
    messages: Required[Messages]
    stage: str
    method: str
    question_id: Required[str]
    dataset: str | None
    f1: float | None
    steps: int | None
    top_k: int | None


COLUMNS = columns_of(Conversation, "schema", "messages", "question_id", "dataset", "f1", "steps")
"""The columns of a teacher's chains."""

GOLD_COLUMNS = columns_of(Conversation, "schema", "messages", "stage", "method", "question_id", "dataset", "top_k")
"""The columns of replies from the gold evidence."""


def read_chains(path: Path, batch: int = BATCH) -> Iterator[Conversation]:
    """Stream the rows of a file of chains, `batch` rows in memory.

    Raises:
        UserError: as `read_checked`.
    """
    return read_checked(path, Conversation, batch)
