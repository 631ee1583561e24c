"""`notewriter overlap`: check that finished training data shares no question with evaluations.

Every question that has a row in the data (pairs, chains or gold evidence) is compared with the questions of evaluation
files, or with just those that evaluation runs were about: the same or nearly the same wording, eight words in a row, or
the same supporting passages. The result goes into stats.json and the dataset card; an overlap is an error, and
overlapping_questions.jsonl beside the data names both questions.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from notewriter.data.dataset.hygiene import load_evaluation
from notewriter.data.dataset.overlap import OVERLAPPING, check_data, load_runs
from notewriter.ground.config import check, parse
from notewriter.ground.errors import UserError


@dataclass
class OverlapArguments:
    """The data, and what it is evaluated on."""

    data: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "folders that pairs, chains, gold or merge-shards wrote; their question files must be there"}
    )
    eval_files: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "evaluation files, path -> dataset, e.g. {data/dev.json: hotpotqa}"}
    )
    runs: list[str] = field(
        default_factory=list, metadata={"help": "folders of notewriter evaluate, for just the questions that they used"}
    )


def main(argv: list[str]) -> None:
    """Check every folder; write the results."""
    (arguments,) = parse(OverlapArguments, argv, prog="notewriter overlap", description=__doc__)
    check(arguments)
    evaluation = load_evaluation(arguments.eval_files) + load_runs([Path(run) for run in arguments.runs])
    if not evaluation:
        raise UserError('nothing to compare with: give --eval_files \'{"FILE": "DATASET"}\', --runs FOLDER, or both')
    found = {}
    for folder in map(Path, arguments.data):
        lines, found[folder] = check_data(folder, evaluation)
        sys.stdout.writelines(f"{line}\n" for line in lines)
    if leaking := [str(folder / OVERLAPPING) for folder, count in found.items() if count]:
        raise UserError(
            f"{', '.join(leaking)}: {sum(found.values())} training questions overlap with evaluation questions; build "
            "the data again with these eval_files, or evaluate on other questions"
        )
