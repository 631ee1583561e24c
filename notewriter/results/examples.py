"""Notes of two runs on the same questions, beside the best note without a model at as many words."""

from notewriter.evaluation.controls import CONTENDERS, control_notes
from notewriter.evaluation.notes import FACTS, note_scores
from notewriter.ground.digests import drawn
from notewriter.results.runs import Run
from notewriter.results.without_a_model import highest_control


def examples(before: Run, after: Run, number: int) -> str:
    """The notes on the `number` shared questions whose ids have the smallest hashes, each with its share of the facts.

    The control is the one with the highest mean over all questions of the run after; empty where nothing has a note.

    Raises:
        UserError: as `controls.readings`.
    """
    read = {each.question.id: each for each in after.read}
    notes = control_notes([*read.values()], CONTENDERS) if read else {}
    scores = {
        name: {id: note_scores(note, read[id].question) for id, note in by_question.items()}
        for name, by_question in notes.items()
    }
    best = highest_control(scores, FACTS)
    parts = []
    for id in drawn(read.keys() & before.predictions.keys(), number):
        question = read[id].question
        written = {"before": before.predictions[id].note, "after": read[id].note}
        written |= {best: notes[best][id]} if best else {}
        lines = [f"{_line(question.question)} ({_line(' | '.join(question.answers))})"]
        for name, note in written.items():
            facts = note_scores(note, question).get(FACTS)
            lines.append(f"  {name:>8} {'' if facts is None else f'{facts:.2f}':>4}  {_line(note)}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n" if parts else ""


def _line(text: str) -> str:
    """On one line, and without what moves a terminal's cursor."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
