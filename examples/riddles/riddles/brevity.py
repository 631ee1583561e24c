"""A judge that needs no model: of the notes that contain a gold answer, the shortest."""

from notewriter.data.judges.case import Case, Verdict, by_score, judge
from notewriter.evaluation.notes import note_quality


@judge("note", "updated note")
async def brevity(case: Case) -> Verdict:
    """Score notes that contain a gold answer by their brevity, all others 0."""
    qualities = [note_quality(candidate, case.question) for candidate in case.candidates]
    return by_score(case, [each.get("note_has_answer", 0) / max(1, each["note_words"]) for each in qualities])
