"""The judge `metric`: answers are scored by the task's metric."""

from dataclasses import replace

from notewriter.data.judges.case import Case, Verdict, by_score, judge
from notewriter.evaluation.metrics import FAMILIES, score
from notewriter.ground.errors import UserError
from notewriter.ground.text import tokens


@judge("answer")
async def metric(case: Case) -> Verdict:
    """Rank answers by the task's metric, without a model (DeepNote, appendix D: D_Ans).

    If all scores are 0 or 1, this is the paper's random right answer against a random wrong one.
    """
    return by_score(case, [answer_score(case, candidate) for candidate in case.candidates])


def answer_score(case: Case, answer: str) -> float:
    """The F1 of an answer, or the first share of a family without F1 of which more is better; in [0, 1].

    Gold answers without a word, as "$" of some of MuSiQue's training questions, do not count here, although by the
    benchmark's rules any answer without words equals them; an answer without a word is wrong.

    Raises:
        UserError: the family has no such metric.
    """
    family = case.rules.family
    metrics = [metric.name for metric in FAMILIES[family].metrics if metric.share and metric.better == "higher"]
    if not metrics:
        raise UserError(f"metric family {family}: has no share of which more is better; choose another judge")
    golds = tuple(gold for gold in case.question.answers if tokens(gold))
    if not (golds and tokens(answer)):
        return 0.0
    scores = score(family, answer, replace(case.question, answers=golds))
    return scores["f1" if "f1" in metrics else metrics[0]]
