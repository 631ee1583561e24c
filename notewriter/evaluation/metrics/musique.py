"""MuSiQue (Trivedi et al., 2022): em and f1, the maximum over the gold answers, without a rule for yes and no."""

from notewriter.evaluation.metrics.metric import EXACT_MATCH, F1, Family
from notewriter.evaluation.metrics.text import best, empty_aware_f1, exact_match
from notewriter.ground.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """Each metric against the best-matching gold answer."""
    return {
        "em": best(exact_match, prediction, question.answers),
        "f1": best(empty_aware_f1, prediction, question.answers),
    }


FAMILY = Family(score, (EXACT_MATCH, F1))
