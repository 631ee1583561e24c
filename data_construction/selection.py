"""The questions that training data is made from: those that overlap left out, in shards, and the split for dev."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from annotated_types import Interval

from data_construction.hygiene import Drop, Seen, clean_questions, load_evaluation
from notewriter.benchmarks.questions import QuestionArguments, load_selected
from notewriter.config import check
from notewriter.records import Question


@dataclass(kw_only=True)
class SelectionArguments(QuestionArguments):
    """The options that every command that makes training data has."""

    eval_files: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "files that will be evaluated with, path -> dataset, e.g. {data/2wiki/dev.json: 2wikimultihopqa}; "
            "training questions that overlap with theirs are left out and counted"
        },
    )
    shard: str | None = field(
        default=None,
        metadata={
            "help": "i/n: the i-th of n parts of the questions, to be run on n machines at once with an output_dir "
            "each; notewriter merge-shards makes one dataset of them"
        },
    )
    dev_share: Annotated[float, Interval(ge=0, lt=1)] = field(
        default=0.1, metadata={"help": "share of the questions whose rows go to dev.parquet"}
    )


class Selection(NamedTuple):
    """The questions of all shards, those that are left out, and the evaluation questions that they may not meet."""

    questions: list[Question]
    drops: list[Drop]
    evaluation: list[Seen]


def clean_selection(arguments: SelectionArguments) -> Selection:
    """Load the questions that the options select, without those that may not be trained on.

    Raises:
        UserError: a share out of its range, the errors of loading, or no question is left.
    """
    check(arguments)
    selected = load_selected(arguments)
    evaluation = load_evaluation(arguments.eval_files)
    return Selection(*clean_questions(selected, evaluation), evaluation)
