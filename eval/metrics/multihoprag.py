"""MultiHop-RAG (Tang & Yang, 2024): acc by the official formula, with em and f1 beside it.

The formula takes one shared word for a right answer (a prediction "the" is right about "the sun"). Of a prediction that
says `The answer to the question is "..."`, as the official prompt asks for, the quotation counts.
"""

import re

from eval.metrics.metric import ACCURACY, EXACT_MATCH, F1, Family
from eval.metrics.text import best, exact_match, token_f1
from notewriter.records import Question

_QUOTED_ANSWER = re.compile(r'The answer to the question is "(.*?)"')


def score(prediction: str, question: Question) -> dict[str, float]:
    """Accuracy by a shared word, be it "the"; em and f1 are SQuAD's."""
    if quoted := _QUOTED_ANSWER.search(prediction):
        prediction = quoted[1]
    words = set(prediction.lower().split())
    shared = any(words & set(gold.lower().split()) for gold in question.answers)
    return {
        "acc": float(shared),
        "em": best(exact_match, prediction, question.answers),
        "f1": best(token_f1, prediction, question.answers),
    }


FAMILY = Family(score, (ACCURACY, EXACT_MATCH, F1))
