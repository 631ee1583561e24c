"""Shards: the parts of a dataset that are built on several machines at once."""

import re
from collections.abc import Sequence

from notewriter.ground.errors import UserError
from notewriter.ground.records import Question

SHARDS = "shards.json"
"""The number of shards that a dataset was merged from, beside it."""


def parse_shard(shard: str | None) -> tuple[int, int]:
    """`"2/4"` as (2, 4); without a shard (1, 1).

    Raises:
        UserError: it has another form.
    """
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", shard or "1/1", re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"shard: {shard!r} is not i/n with 1 <= i <= n, such as 2/4")
    return int(match[1]), int(match[2])


def shard_of(questions: Sequence[Question], shard: str | None) -> list[Question]:
    """The questions of the shard `i/n`: every n-th one, starting with the i-th.

    Raises:
        UserError: `shard` has another form, or no question is left for it.
    """
    number, count = parse_shard(shard)
    if number > len(questions):
        raise UserError(f"shard: {len(questions)} questions leave nothing for {shard}; make fewer shards")
    return list(questions[number - 1 :: count])
