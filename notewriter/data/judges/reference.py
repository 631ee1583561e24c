"""The judge `reference`: notes are scored by the gold evidence in them."""

from notewriter.data.gold_evidence import at_hand, document_note_score, reference_score
from notewriter.data.judges.case import Case, Verdict, by_score, judge


@judge("note", "updated note", "document note")
async def reference(case: Case) -> Verdict:
    """Rank notes by the gold evidence in their first `note_words` words (`reference_score`), without a model.

    Only the facts and answers that lie among the passages or in the note so far count: length that no source can fill
    with evidence earns nothing. Where none lies there, there is no pair. A reply to a single document is compared with
    the evidence that is new in that document (`document_note_score`).
    """
    if case.kind == "document note":
        if not case.question.supporting_facts:
            return Verdict(alike=True, reason="no facts are known")
        return by_score(
            case, [document_note_score(candidate, case.question, case.variables) for candidate in case.candidates]
        )
    known = at_hand(case.question, case.variables)
    if not (known.supporting_facts or known.answers):
        return Verdict(alike=True, reason="no gold evidence lies among the passages")
    return by_score(case, [reference_score(candidate, known, case.rules.note_words) for candidate in case.candidates])
