"""`notewriter judge`: a judge model rates the answers, the chains of steps and the notes of finished runs.

`answer`: does the prediction contain a gold answer (judged_accuracy); `graded_answer`: the same in grades of 0, 0.5 and
1 (graded_accuracy, ReaRAG's ACC_L); `explained_answer`: the same after an explanation (explained_accuracy, as in
NotesWriting). `chain`: efficiency, redundancy and coherence of thoughts, actions and observations from 0 to 5, where 5
is always best (chain_efficiency, ...). `density`: the share of the note, or of the passages for methods without notes,
that is evidence (knowledge_density). The scores are added to the run's, for compare and report; unreadable replies are
counted by reason and left out of the means. `judged/costs.json` has the costs of judging: tokens, seconds and, at given
prices, money.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.artifacts.journal import ResumeArguments
from notewriter.evaluation.judgements import JUDGEMENTS
from notewriter.evaluation.judging import judge
from notewriter.ground.config import command_line, parse
from notewriter.models.prices import CostArguments
from notewriter.models.roles import ModelArguments


@dataclass
class JudgeArguments:
    """The options of `notewriter judge`: the runs, and the way of judging."""

    runs: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "run folders that `evaluate` wrote; run the same command again to resume"}
    )
    judgements: Annotated[list[str], MinLen(1)] = field(
        default_factory=lambda: ["answer"], metadata={"help": f"any of: {', '.join(JUDGEMENTS)}"}
    )


def main(argv: list[str]) -> None:
    """Judge; questions that were judged before are not judged again."""
    arguments, resume, models, costs = parse(
        [JudgeArguments, ResumeArguments, ModelArguments, CostArguments],
        argv,
        prog="notewriter judge",
        description=__doc__,
    )
    command = command_line("notewriter judge", argv)
    runs = list(dict.fromkeys(map(Path, arguments.runs)))
    sys.stdout.write("".join(judge(runs, arguments.judgements, models, resume, costs, command=command)))
