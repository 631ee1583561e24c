"""StrategyQA as scored by DeepNote: acc, whether the prediction contains the gold yes or no as a word."""

import re

from notewriter.evaluation.metrics.metric import ACCURACY, Family
from notewriter.ground.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """1.0 where the prediction contains a gold verdict as a word, in any case."""
    text = prediction.lower()
    return {"acc": float(any(re.search(rf"\b{re.escape(gold.lower())}\b", text) for gold in question.answers))}


FAMILY = Family(score, (ACCURACY,))
