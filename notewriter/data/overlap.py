"""`notewriter overlap`: check that finished training data shares no question with evaluations.

Every question that has a row in the data (pairs, chains or gold evidence) is compared with the questions of evaluation
files, or with just those of evaluation runs. Two questions overlap by the same or nearly the same wording, eight words
in a row, or the same supporting passages. The result goes into stats.json and the dataset card; an overlap is an error,
and overlapping_questions.jsonl beside the data names both questions.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from annotated_types import MinLen

from notewriter.artifacts.parquet import read_checked
from notewriter.artifacts.reading import pick
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.statistics import OverlapCheck, read_statistics
from notewriter.data.dataset.card import OVERLAPPING, REMEDY, add_checks
from notewriter.data.dataset.hygiene import Seen, load_evaluation, overlapping
from notewriter.data.dataset.splits import split_files
from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.ground import jsonl
from notewriter.ground.config import check, parse
from notewriter.ground.errors import UserError
from notewriter.ground.locks import locked
from notewriter.ground.options import names_in
from notewriter.ground.records import Question


@dataclass
class OverlapArguments:
    """The data, and its evaluation questions."""

    data: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "folders that pairs, chains or gold wrote; their question files must be there"}
    )
    eval_files: dict[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "evaluation files, path -> dataset, e.g. {data/dev.json: hotpotqa}",
            "names": names_in,
        },
    )
    runs: list[str] = field(
        default_factory=list,
        metadata={"help": "run folders of notewriter evaluate, to compare with only the questions that they used"},
    )


def main(argv: list[str]) -> None:
    """Check every folder; write the results."""
    (arguments,) = parse(OverlapArguments, argv, prog="notewriter overlap", description=__doc__)
    check(arguments)
    evaluation = load_evaluation(arguments.eval_files) + load_runs([Path(run) for run in arguments.runs])
    if not evaluation:
        raise UserError('nothing to compare with: give --eval_files \'{"FILE": "DATASET"}\', --runs FOLDER, or both')
    overlaps = {}
    for folder in map(Path, arguments.data):
        lines, overlaps[folder] = check_data(folder, evaluation)
        sys.stdout.writelines(f"{line}\n" for line in lines)
    if leaking := [str(folder / OVERLAPPING) for folder, count in overlaps.items() if count]:
        raise UserError(
            f"{', '.join(leaking)}: {sum(overlaps.values())} training questions overlap with evaluation questions; "
            "build the data again with these eval_files, or evaluate on other questions"
        )


class _Row(TypedDict):
    """The compared part of a row."""

    question_id: str


def load_runs(folders: Sequence[Path]) -> list[Seen]:
    """The questions of evaluation runs, as their configurations select them; a run that is named twice is one.

    Raises:
        UserError: a folder has no configuration, or its questions cannot be loaded.
    """
    once = dict.fromkeys(folders)
    return [Seen(question, str(folder)) for folder in once for question in _selected(folder, read_config(folder))]


def check_data(folder: Path, evaluation: Sequence[Seen]) -> tuple[list[str], int]:
    """Compare the questions of a folder's rows with evaluation questions; write stats.json, the card and `OVERLAPPING`.

    Returns:
        A line per evaluation file or run, and the number of training questions that overlap with any.

    Raises:
        UserError: the folder is no finished dataset, or its questions cannot be loaded.
    """
    read_statistics(folder, REMEDY)
    config = read_config(folder)
    used = {
        row["question_id"] for path in split_files(folder) for row in read_checked(path, _Row, columns=["question_id"])
    }
    questions = [question for question in _selected(folder, config) if question.id in used]
    if len(questions) != len(used):
        raise UserError(
            f"{folder}: {len(used) - len(questions)} of its questions are not in {config['path']} any more; restore "
            "the file that the data was made from"
        )
    lines, drops, checks = [], [], dict[str, OverlapCheck]()
    for name, count in Counter(str(seen.evaluation_file) for seen in evaluation).items():
        # One by one, so that a question counts for each evaluation that it overlaps with.
        leaks = overlapping(questions, [seen for seen in evaluation if seen.evaluation_file == name])
        reasons = dict(sorted(Counter(drop.reason for drop in leaks).items()))
        drops += leaks
        checks[name] = {"questions": count, "training_questions": len(questions), "overlapping": reasons}
        counts = "; ".join(f"{many}: {reason}" for reason, many in reasons.items())
        lines.append(
            f"{folder}: {len(leaks) or 'none'} of {len(questions)} questions overlap with the {count} of {name}"
            + (f" ({counts})" if counts else "")
        )
    with locked(folder):
        others = [drop for drop in _overlapping(folder) if drop["evaluation_file"] not in checks]
        jsonl.write(folder / OVERLAPPING, [*others, *(drop.to_dict() for drop in drops)])
        add_checks(folder, config, checks)
    return lines, len({drop.question.id for drop in drops})


def _overlapping(folder: Path) -> list[dict[str, Any]]:
    file = folder / OVERLAPPING
    return [drop for _, drop in jsonl.read(file)] if file.is_file() else []


def _selected(folder: Path, config: Mapping[str, Any]) -> list[Question]:
    """The questions that a run's configuration selects."""
    settings = pick(config, QuestionArguments)
    if not {"dataset", "path"} <= settings.keys():
        raise UserError(f"{folder}: its configuration names no questions; give the folder of a run over questions")
    try:
        return load_selected(QuestionArguments(**settings | {"output_dir": str(folder)}))[1]
    except UserError as error:
        raise UserError(f"{folder / CONFIG}: {error}") from error
