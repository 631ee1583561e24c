"""The gold evidence scores notes."""

from notewriter.data.gold_evidence import document_note_score, reference_score
from notewriter.data.judges.case import Case, Verdict, by_score, judge


@judge("note", "updated note", "document note")
async def reference(case: Case) -> Verdict:
    """Rank notes by how much of the gold evidence they contain for their length (`reference_score`), without a model.

    A reply to a single document is compared with what is new in that document (`document_note_score`).
    """
    if case.kind == "document note":
        if not case.question.supporting_facts:
            return Verdict(alike=True, reason="no facts are known")
        scores = [document_note_score(candidate, case.question, case.variables) for candidate in case.candidates]
    else:
        scores = [reference_score(candidate, case.question) for candidate in case.candidates]
    return by_score(case, scores)
