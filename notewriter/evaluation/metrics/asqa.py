"""ASQA as scored by DeepNote's copy of ALCE's scorer: short answers in the normalised prediction, for each reading.

ALCE itself reads a prediction up to its first line break and removes citation marks before; DeepNote does neither.
"""

from notewriter.evaluation.metrics.metric import Family, Metric
from notewriter.ground.records import Question
from notewriter.ground.text import normalise


def golds(question: Question) -> list[list[str]]:
    """The normalised short answers of each reading of the question."""
    return [[normalise(answer) for answer in answers] for answers in question.metadata["short_answers"]]


def score(prediction: str, question: Question) -> dict[str, float]:
    """The share of readings with a short answer in the prediction, and whether that is all (ALCE's str-em, str-hit)."""
    text = normalise(prediction)
    found = [any(answer in text for answer in answers) for answers in golds(question)]
    return {"str_em": sum(found) / len(found), "str_hit": float(all(found))}


FAMILY = Family(
    score,
    (
        Metric("str_em", "Short answers in the answer", "Share of a question's short answers in the long answer."),
        Metric("str_hit", "All short answers in the answer", "Share of questions with all of them in the answer."),
    ),
    golds=golds,
)
