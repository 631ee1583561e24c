"""The questions that training data is made from, without those that overlap with evaluation questions."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from annotated_types import Interval

from notewriter.data.dataset.hygiene import DroppedQuestion, Seen, clean_questions, load_evaluation
from notewriter.data.dataset.shards import shard_of
from notewriter.data.dataset.splits import dev_questions
from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.ground.config import check
from notewriter.ground.records import Question


@dataclass(kw_only=True)
class SelectionArguments(QuestionArguments):
    """The options shared by the commands that make training data."""

    eval_files: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "evaluation files, path -> dataset, e.g. {data/2wiki/dev.json: 2wikimultihopqa}; training "
            "questions that overlap with them are left out and counted"
        },
    )
    shard: str | None = field(
        default=None,
        metadata={
            "help": "i/n: the i-th of n parts of the questions, to run on n machines at once, each with its own "
            "output_dir; notewriter merge-shards makes one dataset of them"
        },
    )
    dev_share: Annotated[float, Interval(ge=0, lt=1)] = field(
        default=0.1, metadata={"help": "share of the questions whose rows go to dev.parquet"}
    )


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
