"""The questions that training data is made from: without overlap with evaluation, in train and dev."""

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from notewriter.data.dataset.hygiene import DroppedQuestion, Seen, clean_questions, load_evaluation
from notewriter.data.options import SelectionArguments
from notewriter.datasets.questions import load_selected
from notewriter.ground.config import check
from notewriter.ground.records import Question

A = TypeVar("A", bound=SelectionArguments)


class Selection(NamedTuple):
    """The questions that training data is made from.

    Args:
        questions: those to train on.
        dev: the ids of those whose rows go to dev.
        drops: those left out.
        evaluation: the evaluation questions that they were compared with.
    """

    questions: list[Question]
    dev: set[str]
    drops: list[DroppedQuestion]
    evaluation: list[Seen]


def clean_selection(arguments: A) -> tuple[A, Selection]:
    """The options as a run records them, and the questions that they select, without those that must not be trained on.

    Raises:
        UserError: an option is out of range, a file cannot be loaded, or no question is left.
    """
    check(arguments)
    arguments, selected = load_selected(arguments)
    evaluation = load_evaluation(arguments.eval_files)
    questions, drops = clean_questions(selected, evaluation)
    dev = dev_questions(questions, arguments.dev_share, arguments.seed)
    return arguments, Selection(questions, dev, drops, evaluation)


def dev_questions(questions: Sequence[Question], share: float, seed: int | None) -> set[str]:
    """The ids of a random share of the questions, whose rows go to dev."""
    ids = sorted(question.id for question in questions)
    return set(random.Random(f"{seed} dev").sample(ids, round(share * len(ids))))
