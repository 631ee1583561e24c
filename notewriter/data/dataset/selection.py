"""The questions that training data is made from: without overlap with evaluation, in shards, in train and dev."""

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from notewriter.data.dataset.hygiene import DroppedQuestion, Seen, clean_questions, load_evaluation
from notewriter.data.options import SelectionArguments
from notewriter.datasets.questions import load_selected
from notewriter.ground.config import check
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question


class Selection(NamedTuple):
    """The questions that training data is made from.

    Args:
        questions: those of all shards.
        members: those of this shard.
        dev: the ids of those whose rows go to dev, in all shards.
        drops: those left out.
        evaluation: the evaluation questions that they were compared with.
    """

    questions: list[Question]
    members: list[Question]
    dev: set[str]
    drops: list[DroppedQuestion]
    evaluation: list[Seen]


def clean_selection(arguments: SelectionArguments) -> Selection:
    """Load the questions that the options select, without those that must not be trained on.

    Raises:
        UserError: an option is out of range, a file cannot be loaded, or no question is left.
    """
    check(arguments)
    selected = load_selected(arguments)
    evaluation = load_evaluation(arguments.eval_files)
    questions, drops = clean_questions(selected, evaluation)
    members = shard_of(questions, arguments.shard)
    # Of all questions, so that every shard makes the same split.
    dev = dev_questions(questions, arguments.dev_share, arguments.seed)
    return Selection(questions, members, dev, drops, evaluation)


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


def dev_questions(questions: Sequence[Question], share: float, seed: int | None) -> set[str]:
    """The ids of a random share of the questions, whose rows go to dev."""
    ids = sorted(question.id for question in questions)
    return set(random.Random(f"{seed} dev").sample(ids, round(share * len(ids))))
