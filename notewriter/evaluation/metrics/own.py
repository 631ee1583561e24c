"""Questions of one's own: em and f1 of words in any script, the maximum over the gold answers.

No official scorer fixes the rules here. Compatibility forms such as ligatures and full-width letters count as plain
ones (Unicode NFKC), punctuation is Unicode's, and each character of a script without spaces is a word
(`notewriter.ground.text.tokens`). On ASCII both scores are SQuAD's (Rajpurkar et al., 2016), with HotpotQA's rule for
yes and no.
"""

from notewriter.evaluation.metrics.metric import EXACT_MATCH, F1, Family
from notewriter.evaluation.metrics.text import verdict_f1_of
from notewriter.ground.records import Question
from notewriter.ground.text import tokens


def score(prediction: str, question: Question) -> dict[str, float]:
    """Each metric against the best-matching gold answer."""
    said, golds = _plain(prediction), [_plain(gold) for gold in question.answers]
    return {"em": float(said in golds), "f1": max(verdict_f1_of(said, gold) for gold in golds)}


def _plain(text: str) -> str:
    # An answer such as "$" or "A" has no word, and nothing but itself equals it.
    return " ".join(tokens(text)) or text.strip().casefold()


FAMILY = Family(score, (EXACT_MATCH, F1))
