"""First word: whether a prediction begins with the gold answer's first word, with exact match, F1 and length beside."""

from notewriter import Question, score
from notewriter.evaluation.metrics.metric import EXACT_MATCH, F1, Family, Metric
from notewriter.ground.text import normalise


def score_answer(prediction: str, question: Question) -> dict[str, float]:
    """1.0 if the first normalised words are equal, for any gold answer; the scores of the family `own`; a length."""
    first = normalise(prediction).split()[:1]
    right = any(first == normalise(gold).split()[:1] for gold in question.answers)
    beside = score("own", prediction, question)
    return {"first_word": float(right), "answer_words": len(prediction.split())} | beside


FIRST_WORD = Metric("first_word", "First word", "Share of predictions with the right first word.")
WORDS = Metric("answer_words", "Words", "Length of the answer.", better="lower", decimals=1, share=False)

FAMILY = Family(score_answer, (FIRST_WORD, WORDS, EXACT_MATCH, F1))
