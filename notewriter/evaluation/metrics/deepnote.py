"""DeepNote's own scorer (Wang et al., 2024, section 4): acc, f1 and em against a question's first gold answer.

The scorer takes the best of several gold answers, but each question of the authors' test files has one alone, without
the aliases of the benchmark.
"""

from notewriter.evaluation.metrics.metric import ACCURACY, EXACT_MATCH, F1, Family
from notewriter.evaluation.metrics.text import exact_match, token_f1
from notewriter.ground.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """Accuracy looks for the unnormalised gold answer anywhere in the prediction, ignoring case."""
    gold = question.answers[0]
    return {
        "acc": float(gold.lower() in prediction.lower()),
        "f1": token_f1(prediction, gold),
        "em": exact_match(prediction, gold),
    }


FAMILY = Family(score, (ACCURACY, F1, EXACT_MATCH))
