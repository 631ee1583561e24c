"""The judge `status`: adaptive decisions are scored by the gold evidence."""

from notewriter.data.gold_evidence import is_better
from notewriter.data.judges.case import Case, Verdict, by_score, judge
from notewriter.rollouts.parsing import parse_status


@judge("status")
async def status(case: Case) -> Verdict:
    """Rank decisions by whether they agree with the gold evidence, without a model; an unreadable one is wrong."""
    best_note, new_note = case.variables["best_note"], case.variables["new_note"]
    right = is_better(case.question, best_note, new_note)
    if right is None:
        return Verdict(alike=True, reason="no gold evidence is known")
    return by_score(case, [float(parse_status(candidate) is right) for candidate in case.candidates])
