"""The judge `chance`: random scores, as a control for every training on preferences."""

from notewriter.data.judges.case import Case, Verdict, by_score, judge


@judge()
async def chance(case: Case) -> Verdict:
    """Rank the candidates at random, the same way for the same prompt and seed: training on such pairs must do nothing.

    All else is as with judges that score: a candidate that was cut is not chosen, and `max_length_gap` holds.
    """
    return by_score(case, [case.random.random() for _ in case.candidates])
