"""The common part of short-answer scorers: exact match and token F1 in SQuAD's normalisation.

The scorers agree on the normalisation and differ in corner cases (yes and no, empty answers, aliases), so a number is
meaningful only together with the name of its family.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from notewriter.ground.text import normalise

_VERDICTS = frozenset({"yes", "no", "noanswer"})


def token_f1(prediction: str, gold: str) -> float:
    """F1 of the normalised texts' tokens as multisets, in [0, 1]; 0 where they share none.

    Source: SQuAD (Rajpurkar et al., 2016), section 6.1.
    """
    return f1_of(normalise(prediction).split(), normalise(gold).split())


def f1_of(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """F1 of two multisets of words, in [0, 1]; 0 where they share none."""
    shared = (Counter(predicted) & Counter(expected)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def exact_match(prediction: str, gold: str) -> float:
    """1.0 where the normalised texts are equal, else 0.0 (SQuAD)."""
    return float(normalise(prediction) == normalise(gold))


def verdict_f1(prediction: str, gold: str) -> float:
    """Token F1 without partial credit where either side is just yes, no or noanswer (HotpotQA)."""
    return verdict_f1_of(normalise(prediction), normalise(gold))


def verdict_f1_of(left: str, right: str) -> float:
    """The same of two texts in a normal form, with spaces between their words."""
    if left != right and (left in _VERDICTS or right in _VERDICTS):
        return 0.0
    return f1_of(left.split(), right.split())


def empty_aware_f1(prediction: str, gold: str) -> float:
    """Token F1, where two texts that both normalise to nothing agree (SQuAD 2.0, MuSiQue)."""
    if not normalise(prediction) and not normalise(gold):
        return 1.0
    return token_f1(prediction, gold)


def em_and_f1(prediction: str, golds: Sequence[str], f1: Callable[[str, str], float] = token_f1) -> dict[str, float]:
    """Exact match and F1, each against the best-matching of several gold answers."""
    return {
        "em": max(exact_match(prediction, each) for each in golds),
        "f1": max(f1(prediction, each) for each in golds),
    }
