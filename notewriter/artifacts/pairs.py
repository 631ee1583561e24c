"""Pairs on disk: train.parquet and dev.parquet in TRL's conversational preference format."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict, cast

import pyarrow as pa

from notewriter.artifacts.parquet import BATCH, read_checked
from notewriter.ground.records import Message

SCHEMA = "notewriter/pair/1"

SIDES = ("chosen", "rejected")


class _Source(TypedDict):
    kind: str


class Source(_Source, total=False):
    """Where a side of a pair comes from.

    `kind` is `model`, with the sampling that drew it, or `gold`.
    """

    temperature: float | None
    top_p: float | None
    max_tokens: int | None


class _Pair(TypedDict):
    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    stage: str
    question_id: str


REQUIRED = tuple(_Pair.__annotations__)
"""The columns that training and the viewer need; the others are provenance."""


class Pair(_Pair, total=False):
    """A row: a prompt with a better and a worse completion, each one assistant message, and their provenance.

    `judge_orders` are, for each of the `judge_replies`, the candidates in the order in which the judge saw them,
    counted from 0 in the order in which they were drawn. Noise is the standard error of a score that is a mean, in its
    unit; None for a score that was taken once. Tokens are as counted by the teacher's server, and None for what the
    gold evidence wrote. In the journal a row has no `dataset` yet.
    """

    schema: str
    method: str
    dataset: str
    top_k: int | None
    chosen_source: Source
    rejected_source: Source
    chosen_score: float | None
    rejected_score: float | None
    chosen_noise: float | None
    rejected_noise: float | None
    judge: str
    judge_replies: list[str]
    judge_orders: list[list[int]]
    prompt_tokens: int | None
    chosen_tokens: int | None
    rejected_tokens: int | None


class _Row(_Pair, total=False):
    """What is checked of a row: where a pair has no provenance, its columns are null."""

    top_k: int | None
    chosen_source: Source | None
    rejected_source: Source | None
    chosen_score: float | None
    rejected_score: float | None
    judge: str | None
    prompt_tokens: int | None
    chosen_tokens: int | None
    rejected_tokens: int | None


SCORES = tuple(f"{side}_score" for side in SIDES)


def margin(pair: Mapping[str, Any]) -> float | None:
    """The score of the chosen side less that of the rejected one, in the judge's unit; None if the judge gave none."""
    chosen, rejected = (pair.get(score) for score in SCORES)
    return None if chosen is None or rejected is None else chosen - rejected


MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_SOURCE = pa.struct(
    [("kind", pa.string()), ("temperature", pa.float64()), ("top_p", pa.float64()), ("max_tokens", pa.int64())]
)
COLUMNS = pa.schema(
    [
        ("schema", pa.string()),
        ("prompt", MESSAGES),
        ("chosen", MESSAGES),
        ("rejected", MESSAGES),
        ("stage", pa.string()),
        ("method", pa.string()),
        ("question_id", pa.string()),
        ("dataset", pa.string()),
        ("top_k", pa.int64()),
        ("chosen_source", _SOURCE),
        ("rejected_source", _SOURCE),
        ("chosen_score", pa.float64()),
        ("rejected_score", pa.float64()),
        ("chosen_noise", pa.float64()),
        ("rejected_noise", pa.float64()),
        ("judge", pa.string()),
        ("judge_replies", pa.list_(pa.string())),
        ("judge_orders", pa.list_(pa.list_(pa.int64()))),
        ("prompt_tokens", pa.int64()),
        ("chosen_tokens", pa.int64()),
        ("rejected_tokens", pa.int64()),
    ]
)
"""The columns of `Pair`."""


def read_pairs(path: Path, batch: int = BATCH) -> Iterator[Pair]:
    """Stream the rows of a file of pairs, `batch` rows in memory.

    Raises:
        UserError: as `read_checked`.
    """
    return (cast(Pair, row) for row in read_checked(path, _Row, batch))
