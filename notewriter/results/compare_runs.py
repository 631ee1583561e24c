"""`notewriter compare`: runs, or groups of seeds, side by side on the questions they share.

Beside them stand notes that no model wrote (`controls`).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MinLen

from notewriter.evaluation.controls import SENTENCES, control_notes
from notewriter.evaluation.notes import FACTS, note_scores
from notewriter.ground.config import parse
from notewriter.ground.digests import drawn
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.pages.tables import aligned
from notewriter.results.compare import Comparison, compare
from notewriter.results.runs import Run
from notewriter.results.tables import EXPLANATION, beside_table, comparison_table
from notewriter.results.verdict import verdict
from notewriter.results.without_a_model import Beside, beside, best_contender


@dataclass
class CompareArguments:
    """The options of `notewriter compare`."""

    before: Annotated[list[str], MinLen(1)] = field(
        metadata={
            "help": "the baseline run, for example before training: a folder that `evaluate` wrote. Several folders "
            "count as seeds of one configuration: their scores are averaged per question"
        }
    )
    after: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "the other run or runs; differences are after minus before"}
    )
    examples: Annotated[int, Interval(ge=0)] = option(
        0,
        "number of questions, drawn by their ids, whose notes from the first run of each side are printed side by side",
    )


def format_table(comparison: Comparison, other: Beside) -> str:
    """A comparison as an aligned Markdown table; `*` marks a difference that is sure (`is_sure`).

    Notes and answers without a model have a table each.
    """
    parts = [aligned([comparison_table("", ((name, name, paired) for name, paired in comparison.items()))])]
    if other.notes:
        rules = "; ".join(f"{name}: {SENTENCES[name]}" for name in other.notes)
        parts += [
            "Notes without a model, at as many words as those of the run after:\n",
            aligned([beside_table("", other.notes, "after")]),
            f"{rules}.\n",
        ]
    if other.answers:
        parts += ["Always the same answer:\n", aligned([beside_table("", other.answers, "after")])]
    explanation = EXPLANATION + (", of each table apart." if other.notes or other.answers else ".")
    if any(deviation is not None for paired in comparison.values() for deviation in paired.deviations):
        explanation += (
            "\n± is the standard deviation over seeds; intervals and p are over the questions, not over trainings."
        )
    return "\n".join([*parts, explanation])


def examples(before: Run, after: Run, number: int, control: str) -> str:
    """The notes on the `number` shared questions whose ids have the smallest hashes, each with its share of the facts.

    Those of a control stand below them, unless it is empty. Empty where nothing has a note.

    Raises:
        UserError: as `controls.readings`.
    """
    read = {each.question.id: each for each in after.readings}
    notes = control_notes(after.readings, [control] if control else [])
    parts = []
    for id in drawn(read.keys() & before.predictions.keys(), number):
        question = read[id].question
        written = {"before": before.predictions[id].note, "after": read[id].note}
        written |= {name: by_question[id] for name, by_question in notes.items()}
        lines = [f"{_line(question.question)} ({_line(' | '.join(question.answers))})"]
        for name, note in written.items():
            facts = note_scores(note, question).get(FACTS)
            lines.append(f"  {name:>8} {'' if facts is None else f'{facts:.2f}':>4}  {_line(note)}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n" if parts else ""


def _line(text: str) -> str:
    """On one line, and without what moves a terminal's cursor."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def _seeds(folders: Sequence[str]) -> list[Run]:
    """The runs of a side, which are one configuration under several seeds."""
    for number, folder in enumerate(folders):
        if Path(folder).resolve() in {Path(other).resolve() for other in folders[:number]}:
            raise UserError(f"{folder}: given twice, which would count as two seeds; give each run once")
    return [Run(Path(folder)) for folder in folders]


def main(argv: list[str]) -> None:
    """Print the comparison as a table."""
    (arguments,) = parse(
        CompareArguments,
        argv,
        prog="notewriter compare",
        description="Compare runs question by question: means, and the difference with its 95% interval and p-value.",
    )
    before, after = map(_seeds, (arguments.before, arguments.after))
    comparison = compare(before, after)
    other = beside(after)
    sys.stdout.write(format_table(comparison, other) + "\n")
    best = best_contender(other.notes)
    if other.reason:
        sys.stdout.write(f"Without a model: not shown. {other.reason}\n")
    elif arguments.examples and (notes := examples(before[0], after[0], arguments.examples, best)):
        sys.stdout.write(f"\nNotes side by side, with their share of the facts:\n\n{notes}")
    if sentence := verdict(before[0], after[0], comparison, other.notes):
        sys.stdout.write(f"\n{sentence}\n")
