"""The questions of a run: the options shared by all commands that read a question file."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import Interval

from notewriter.datasets import BENCHMARKS, load_questions, question_file, select, with_metadata
from notewriter.datasets.question_sets import with_question_set
from notewriter.ground.errors import UserError
from notewriter.ground.options import kinds_in, names_in, option, where_set
from notewriter.ground.recipes import find
from notewriter.ground.records import Question
from notewriter.ground.releases import FETCHED

A = TypeVar("A", bound="QuestionArguments")

INDEX = {"help": "the index to search (notewriter index); several are searched as one", "of": "retriever"}
RETRIEVER = {
    "help": "the parts of a chain of retrievers, instead of index, e.g. [{index: A}, {index: B, weight: 0.5}, "
    "{rerank: BAAI/bge-reranker-v2-m3, candidates: 50}]; on the command line a JSON object per part",
    "of": "retriever",
    "names": kinds_in,
}
"""The fields of the options `index` and `retriever`, the same in every command."""


PATH = {"help": "the question file; default: the one that `notewriter fetch dataset` got"}
SPLIT = {
    "help": "which of the fetched files: dev, test, train, ...; default: the one that is evaluated",
    "effect": False,
}
"""The fields of the options `path` and `split`, the same in every command."""


@dataclass(kw_only=True)
class QuestionArguments:
    """The questions, the index to search, and the run folder."""

    dataset: str = field(
        metadata={
            "card": False,
            "help": f"the format of --path: {', '.join(BENCHMARKS)}",
            "plugins": BENCHMARKS,
            "names": names_in,
        }
    )
    path: str = field(default=FETCHED, metadata={"card": False, **PATH, "of": "questions"})
    split: str | None = field(default=None, metadata={**SPLIT, "of": "questions"})
    output_dir: str = field(
        metadata={"help": "the run folder; run the same command again to resume", "effect": False, "of": "output"}
    )
    index: list[str] | None = field(default=None, metadata=INDEX)
    retriever: list[dict[str, Any]] | None = field(default=None, metadata=RETRIEVER)
    ids: str | None = option(
        None, "as question_set, but the questions stay in the order of their file", card=False, of="questions"
    )
    question_set: str | None = option(
        None,
        "use these questions in this order: a file of ids, JSON Lines of questions, or a rule such as "
        "configs/question_sets/hotpotqa/ircot_test.yaml, one of the sets that the papers used",
        card=False,
        effect=where_set,
        of="questions",
    )
    where: dict[str, Any] | None = option(
        None, "use the questions with this metadata, e.g. {type: bridge}", of="questions"
    )
    limit: Annotated[int, Interval(ge=1)] | None = option(
        None, "maximum number of questions, sampled with the seed after ids or question_set and where"
    )
    seed: int | None = option(
        0, "seed of all sampling in this run, e.g. of questions; null (in YAML) takes the first questions of the file"
    )
    report_to: list[str] = field(
        default_factory=list,
        metadata={
            "help": "experiment trackers that receive progress and scores, as in training: wandb, trackio, "
            "tensorboard, ...; each needs its package",
            "effect": False,
        },
    )


def load_selected(arguments: A) -> tuple[A, list[Question]]:
    """The options as a run records them, and the questions that they select, in file order or that of the question set.

    Recorded are the path of the file, also where it was left out, and no limit that excludes no question, so that the
    run is the same as one without it.

    Raises:
        UserError: as `load_questions`, `with_question_set`, `with_metadata` and `select`.
    """
    # A run that resumes, or reads its own record, finds the path.
    path = question_file(arguments.dataset, arguments.path, arguments.split)
    if arguments.ids and arguments.question_set:
        raise UserError("ids and question_set are both given; leave one of them out")
    questions = load_questions(arguments.dataset, path)
    if arguments.ids:
        ids = {question.id for question in with_question_set(questions, Path(arguments.ids), path)}
        questions = [question for question in questions if question.id in ids]
    if arguments.question_set:
        questions = with_question_set(questions, find(arguments.question_set), path)
    questions = with_metadata(questions, arguments.where or {})
    limit = None if arguments.limit is not None and arguments.limit >= len(questions) else arguments.limit
    recorded = replace(arguments, path=path, split=None, limit=limit)
    return recorded, select(questions, limit, arguments.seed)
