"""First word: whether a prediction begins with the gold answer's first word."""

from notewriter import Question
from notewriter.evaluation.metrics.metric import Family, Metric
from notewriter.ground.text import normalise


def score(prediction: str, question: Question) -> dict[str, float]:
    """1.0 if the first normalised words are equal, for any gold answer."""
    first = normalise(prediction).split()[:1]
    return {"first_word": float(any(first == normalise(gold).split()[:1] for gold in question.answers))}


FAMILY = Family(score, (Metric("first_word", "First word", "Share of predictions with the right first word."),))
