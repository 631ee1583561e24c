"""The questions of a run: the options that every command over a question file has, and what they select."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from notewriter.benchmarks import BENCHMARKS, load_questions, select, with_ids, with_metadata
from notewriter.records import Question


@dataclass(kw_only=True)
class QuestionArguments:
    """Which questions are worked on, what is searched for them, and where the results go."""

    dataset: str = field(metadata={"help": f"the format of --path: {', '.join(BENCHMARKS)}"})
    path: str = field(metadata={"help": "the question file"})
    output_dir: str = field(metadata={"help": "the run folder; run the same command again to go on"})
    index: list[str] | None = field(
        default=None, metadata={"help": "the index to retrieve from (notewriter index); several are searched as one"}
    )
    ids: str | None = field(
        default=None, metadata={"help": "a file with the ids of the questions to take, one a line, before any limit"}
    )
    where: dict[str, Any] | None = field(
        default=None,
        metadata={"help": "take the questions with this in their metadata, before any limit, e.g. {type: bridge}"},
    )
    limit: Annotated[int, Interval(ge=1)] | None = field(
        default=None, metadata={"help": "at most so many questions, drawn with the seed"}
    )
    seed: int | None = field(
        default=0,
        metadata={"help": "for all that is drawn here, as the questions; in YAML, null takes the file's first ones"},
    )


def load_selected(arguments: QuestionArguments) -> list[Question]:
    """The questions that the options select, in the order of their file.

    A limit that leaves no question out is taken off the arguments: a run with it is a run without it.

    Raises:
        UserError: the errors of `load_questions`, `with_ids`, `with_metadata` and `select`.
    """
    questions = load_questions(arguments.dataset, arguments.path)
    if arguments.ids:
        questions = with_ids(questions, Path(arguments.ids))
    questions = with_metadata(questions, arguments.where or {})
    if arguments.limit is not None and arguments.limit >= len(questions):
        arguments.limit = None
    return select(questions, arguments.limit, arguments.seed)
