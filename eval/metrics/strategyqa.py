"""StrategyQA as DeepNote scores it: acc, whether the gold yes or no stands in the prediction as a word."""

import re

from eval.metrics.metric import ACCURACY, Family
from notewriter.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """1.0 where a gold verdict stands in the prediction as a word, in any case."""
    text = prediction.lower()
    return {"acc": float(any(re.search(rf"\b{re.escape(gold.lower())}\b", text) for gold in question.answers))}


FAMILY = Family(score, (ACCURACY,))
