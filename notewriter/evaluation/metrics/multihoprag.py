"""MultiHop-RAG (Tang & Yang, 2024): acc, the share of right answers by the official rule; additionally em and f1.

One shared word makes an answer right (the prediction "the" is right for "the sun"). Where a prediction says
`The answer to the question is "..."`, as the official prompt asks for, the quoted part is scored.

The authors' qa_evaluate.py prints this share, p, as precision, recall and F1. It is also their accuracy today; the
revision of April 2025 counted every wrong answer three times and printed 1 / (3 - 2p) as accuracy, 0.4545 for 0.4.
"""

import re

from notewriter.evaluation.metrics.metric import ACCURACY, EXACT_MATCH, F1, Family
from notewriter.evaluation.metrics.text import em_and_f1
from notewriter.ground.records import Question

_QUOTED_ANSWER = re.compile(r'The answer to the question is "(.*?)"')


def score(prediction: str, question: Question) -> dict[str, float]:
    """Accuracy by a shared word, even "the"; em and f1 as in SQuAD."""
    if quoted := _QUOTED_ANSWER.search(prediction):
        prediction = quoted[1]
    words = set(prediction.lower().split())
    shared = any(words & set(gold.lower().split()) for gold in question.answers)
    return {"acc": float(shared)} | em_and_f1(prediction, question.answers)


FAMILY = Family(score, (ACCURACY, EXACT_MATCH, F1))
