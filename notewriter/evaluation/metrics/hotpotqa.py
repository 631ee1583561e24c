"""HotpotQA (Yang et al., 2018): em and f1 against the first gold answer."""

from notewriter.evaluation.metrics.metric import EXACT_MATCH, F1, Family
from notewriter.evaluation.metrics.text import exact_match, verdict_f1
from notewriter.ground.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """Against the benchmark's one gold answer; aliases, which follow it, do not count."""
    gold = question.answers[0]
    return {"em": exact_match(prediction, gold), "f1": verdict_f1(prediction, gold)}


FAMILY = Family(score, (EXACT_MATCH, F1))
