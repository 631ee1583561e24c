"""DeepNote's own scorer (Wang et al., 2024, section 4): acc, f1 and em, the maximum over the gold answers."""

from notewriter.evaluation.metrics.metric import ACCURACY, EXACT_MATCH, F1, Family
from notewriter.evaluation.metrics.text import best, exact_match, token_f1
from notewriter.ground.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """Accuracy looks for an unnormalised gold answer anywhere in the prediction, ignoring case."""
    return {
        "acc": float(any(gold.lower() in prediction.lower() for gold in question.answers)),
        "f1": best(token_f1, prediction, question.answers),
        "em": best(exact_match, prediction, question.answers),
    }


FAMILY = Family(score, (ACCURACY, F1, EXACT_MATCH))
