"""TriviaQA (Joshi et al., 2017): em and f1, the maximum over an answer's aliases, with the official normalisation."""

import string

from notewriter.evaluation.metrics.metric import EXACT_MATCH, F1, Family
from notewriter.evaluation.metrics.text import em_and_f1
from notewriter.ground.records import Question

# Unlike SQuAD's, it leaves a space where punctuation was, and takes these marks for punctuation.
_SPACES = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))


def score(prediction: str, question: Question) -> dict[str, float]:
    """Each metric against the best-matching alias; "Betty-Cohen" is "betty cohen"."""
    prediction, golds = prediction.translate(_SPACES), [gold.translate(_SPACES) for gold in question.answers]
    return em_and_f1(prediction, golds)


FAMILY = Family(score, (EXACT_MATCH, F1))
