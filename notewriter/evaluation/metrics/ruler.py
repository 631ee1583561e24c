"""RULER's QA over HotpotQA as MemAgent scores it: sub_em, whether prediction or gold contains the other; em and f1."""

from notewriter.evaluation.metrics import hotpotqa
from notewriter.evaluation.metrics.metric import EXACT_MATCH, F1, Family, Metric
from notewriter.ground.records import Question
from notewriter.ground.text import normalise


def score(prediction: str, question: Question) -> dict[str, float]:
    """Against the first gold answer; em and f1 are HotpotQA's, f1 rounded to two places as in MemAgent's scorer.

    An empty prediction is wrong, but one of articles alone is contained in any gold.
    """
    left, right = normalise(prediction), normalise(question.answers[0])
    contained = bool(prediction) and (left in right or right in left)
    scores = hotpotqa.score(prediction, question)
    return {"sub_em": float(contained), "em": scores["em"], "f1": round(scores["f1"], 2)}


FAMILY = Family(
    score,
    (
        Metric(
            "sub_em", "Contained match", "Share of predictions that contain the gold answer or are contained in it."
        ),
        EXACT_MATCH,
        F1,
    ),
)
