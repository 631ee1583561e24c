"""2WikiMultihopQA (Ho et al., 2020): HotpotQA's em and f1, the maximum over the gold answers."""

from notewriter.evaluation.metrics.metric import EXACT_MATCH, F1, Family
from notewriter.evaluation.metrics.text import em_and_f1, verdict_f1
from notewriter.ground.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """Each metric against the best-matching gold answer."""
    return em_and_f1(prediction, question.answers, verdict_f1)


FAMILY = Family(score, (EXACT_MATCH, F1))
