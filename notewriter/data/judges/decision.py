"""The judge `decision`: DeepNote's adaptive decision compares each updated note with the one before it."""

import asyncio
from dataclasses import replace

from notewriter.data.judges.case import Case, Verdict, hardest, judge
from notewriter.methods.deepnote import DECIDE
from notewriter.rollouts.parsing import object_schema, parse_status

_STATUS_SCHEMA = object_schema({"status": {"type": "string", "enum": ["True", "False"]}})


@judge("updated note")
async def decision(case: Case) -> Verdict:
    """Pair a random True with a random False of the adaptive-decision prompt (DeepNote, appendix D: D_KA).

    Without a False there is no pair, and the method continues with a True.
    """
    replies = list(
        await asyncio.gather(
            *(
                case.ask(
                    DECIDE,
                    json_schema=_STATUS_SCHEMA,
                    question=case.question.question,
                    best_note=case.variables["note"],
                    new_note=candidate,
                )
                for candidate in case.candidates
            )
        )
    )
    statuses = [parse_status(reply) for reply in replies]
    scores = [None if status is None else float(status) for status in statuses]
    better = [i for i, status in enumerate(statuses) if status is True and not case.cut[i]]
    worse = [i for i, status in enumerate(statuses) if status is False]
    chosen = case.random.choice(better) if better else None
    unreadable = statuses.count(None)
    verdict = Verdict(chosen, None, scores, replies, best=better, worst=worse, worse=worse, unreadable=unreadable)
    if better and worse:
        if case.rules.rejected == "hardest" and chosen is not None:
            rejected = hardest(case, chosen, dict.fromkeys(worse, 0.0))
            return replace(verdict, rejected=rejected, worst=[rejected])
        return replace(verdict, rejected=case.random.choice(worse))
    if verdict.unreadable:
        return replace(verdict, reason="judge reply not readable")
    return replace(verdict, alike=True, reason="no candidate better" if worse else "no candidate worse")
