"""Pairs on disk: train.parquet and dev.parquet in TRL's conversational preference format."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Required, TypedDict

from annotated_types import MinLen

from notewriter.artifacts.parquet import BATCH, columns_of, read_checked
from notewriter.ground.records import Message, Sampling

SCHEMA = "notewriter/pair/1"

SIDES = ("chosen", "rejected")


Messages = Annotated[list[Message], MinLen(1)]


class SideSource(TypedDict, total=False):
    """The origin of one side of a pair.

    `kind` is `model`, with the sampling that drew it, `gold` (the gold evidence) or `control` (a rule).
    """

    kind: Required[str]
    temperature: float | None
    top_p: float | None
    max_tokens: int | None


def source_of(sampling: Sampling) -> SideSource:
    """The source of a text that a model wrote."""
    return {
        "kind": "model",
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }


class Pair(TypedDict, total=False):
    """A row: a prompt with a better and a worse completion, each one assistant message, and their provenance.

    Training and the viewer need the required columns. The others are provenance, and null in a pair that has none.

    `judge_orders` are, for each of the `judge_replies`, the candidates in the order in which the judge saw them,
    counted from 0 in the order in which they were drawn. Noise is the standard error of a score that is a mean, in its
    unit; None for a score that was taken once. Tokens are as counted by the teacher's server, and None for what the
    gold evidence wrote. In the journal a row has no `dataset` yet.
    """

    schema: str | None
    prompt: Required[Messages]
    chosen: Required[Messages]
    rejected: Required[Messages]
    stage: Required[str]
    method: str | None
    question_id: Required[str]
    dataset: str | None
    top_k: int | None
    chosen_source: SideSource | None
    rejected_source: SideSource | None
    chosen_score: float | None
    rejected_score: float | None
    chosen_noise: float | None
    rejected_noise: float | None
    judge: str | None
    judge_replies: list[str] | None
    judge_orders: list[list[int]] | None
    prompt_tokens: int | None
    chosen_tokens: int | None
    rejected_tokens: int | None


COLUMNS = columns_of(Pair)
SCORES = tuple(f"{side}_score" for side in SIDES)


def margin(pair: Mapping[str, Any]) -> float | None:
    """The score of the chosen side less that of the rejected one, in the judge's unit; None if the judge gave none."""
    chosen, rejected = (pair.get(score) for score in SCORES)
    return None if chosen is None or rejected is None else chosen - rejected


def read_pairs(path: Path, batch: int = BATCH) -> Iterator[Pair]:
    """Stream the rows of a file of pairs, `batch` rows in memory.

    Raises:
        UserError: the file is missing or not Parquet, lacks a column, or a row has another type in one; names them.
    """
    return read_checked(path, Pair, batch)
