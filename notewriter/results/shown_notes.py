"""Notes of several cells on the same questions side by side, and which questions an experiment asked."""

import hashlib

from notewriter.artifacts.notes import Note, Notes
from notewriter.ground.digests import drawn
from notewriter.pages.tables import MARKDOWN, Table
from notewriter.results.experiment import Experiment
from notewriter.results.measures import measure

QUESTIONS = 10
"""How many questions' notes stand side by side."""


def side_by_side(experiment: Experiment, notes: Notes) -> list[str]:
    """The section with the notes of some cells on the questions whose ids have the smallest hashes; empty without any.

    The questions are of the first set that was not chosen on. Of a cell with seeds the first seed's note stands there.
    """
    metric = experiment.metrics[0]
    written = [
        (row, scores.get(metric))
        for row, scores in zip(notes.rows, notes.scores, strict=True)
        if row["cell"] in experiment.notes and row["set"] != experiment.chosen_on
    ]
    of = next((of for of in experiment.sets if any(row["set"] == of for row, _ in written)), "")
    rows: dict[str, dict[str, tuple[Note, float | None]]] = {}
    for row, value in written:
        if row["set"] == of:
            rows.setdefault(row["question_id"], {}).setdefault(row["cell"], (row, value))
    parts = []
    for id in drawn(rows, QUESTIONS):
        row, _ = next(iter(rows[id].values()))
        lines = [f"**{_escaped(row['question'])}** {_escaped(row['answers'][0] if row['answers'] else '')}", ""]
        for cell in experiment.notes:
            if cell in rows[id]:
                row, value = rows[id][cell]
                shown = "" if value is None else f" ({value:.{measure(metric).decimals}f})"
                lines.append(f"- {_escaped(cell)}{shown}: {_escaped(row['note'])}")
        parts.append("\n".join(lines))
    if not parts:
        return []
    return [
        f"On the {len(parts)} questions of {experiment.sets[of]} whose ids have the smallest SHA-256: "
        f"the question, its gold answer, and the cells' notes, each with its score ({metric}), "
        "of the first seed if there are several.",
        *parts,
    ]


def questions_asked(experiment: Experiment, notes: Notes) -> Table:
    """How many questions each set has, and a hash of their ids."""
    rows = []
    for of, title in experiment.sets.items():
        ids = sorted({row["question_id"] for row in notes.rows if row["set"] == of})
        if ids:
            rows.append([title, str(len(ids)), hashlib.sha256("".join(f"{id}\n" for id in ids).encode()).hexdigest()])
    return "SHA-256 of the ids in their order as text, each followed by a line break", ["set", "questions", "ids"], rows


def _escaped(text: str) -> str:
    return " ".join(text.split()).translate(MARKDOWN)
