"""Short-answer metrics, each under the rules of the benchmark that it is named after.

The scorers agree on SQuAD's normalisation and differ in the corner cases (yes and no, empty answers,
aliases), so a number means something only with its family's name beside it.
"""

import re
import string
from collections import Counter
from collections.abc import Callable

from notewriter.config import choose

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_VERDICTS = frozenset({"yes", "no", "noanswer"})


def normalise(text: str) -> str:
    """Lower-case, without ASCII punctuation, without English articles, single spaces.

    Source: SQuAD (Rajpurkar et al., 2016), the normalisation of its evaluation script. Punctuation
    goes before articles do and leaves no space, so that "Betty-Cohen" becomes "bettycohen".
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(prediction: str, gold: str) -> float:
    """F1 of the two normalised texts' tokens as multisets, in [0, 1]; 0 where they share none.

    Source: SQuAD (Rajpurkar et al., 2016), section 6.1.
    """
    predicted, expected = normalise(prediction).split(), normalise(gold).split()
    shared = (Counter(predicted) & Counter(expected)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def exact_match(prediction: str, gold: str) -> float:
    """1.0 where the normalised texts are the same, else 0.0 (SQuAD)."""
    return float(normalise(prediction) == normalise(gold))


def _verdict_f1(prediction: str, gold: str) -> float:
    """Token F1, but no partial credit where either side is a bare yes, no or noanswer (HotpotQA)."""
    left, right = normalise(prediction), normalise(gold)
    if left != right and (left in _VERDICTS or right in _VERDICTS):
        return 0.0
    return token_f1(prediction, gold)


def _empty_aware_f1(prediction: str, gold: str) -> float:
    """Token F1, but two texts that both normalise to nothing agree (SQuAD 2.0, MuSiQue)."""
    if not normalise(prediction) and not normalise(gold):
        return 1.0
    return token_f1(prediction, gold)


def _hotpotqa(prediction: str, golds: list[str]) -> dict[str, float]:
    # The benchmark has one gold answer a question; aliases come second and do not count.
    return {"em": exact_match(prediction, golds[0]), "f1": _verdict_f1(prediction, golds[0])}


def _2wikimultihopqa(prediction: str, golds: list[str]) -> dict[str, float]:
    return {
        "em": max(exact_match(prediction, gold) for gold in golds),
        "f1": max(_verdict_f1(prediction, gold) for gold in golds),
    }


def _musique(prediction: str, golds: list[str]) -> dict[str, float]:
    return {
        "em": max(exact_match(prediction, gold) for gold in golds),
        "f1": max(_empty_aware_f1(prediction, gold) for gold in golds),
    }


def _deepnote(prediction: str, golds: list[str]) -> dict[str, float]:
    return {
        # Accuracy looks for the gold as it is written, unnormalised, anywhere in the prediction.
        "acc": float(any(gold.lower() in prediction.lower() for gold in golds)),
        "f1": max(token_f1(prediction, gold) for gold in golds),
        "em": max(exact_match(prediction, gold) for gold in golds),
    }


FAMILIES: dict[str, Callable[[str, list[str]], dict[str, float]]] = {
    "hotpotqa": _hotpotqa,
    "2wikimultihopqa": _2wikimultihopqa,
    "musique": _musique,
    "deepnote": _deepnote,
}
"""Family -> its scorer, `(prediction, golds) -> {metric: value in [0, 1]}`."""


def score(family: str, prediction: str, golds: list[str]) -> dict[str, float]:
    """Score one prediction against its gold answers by the rules of one family; values in [0, 1].

    `hotpotqa` (Yang et al., 2018): em, f1 against the first gold. `2wikimultihopqa` (Ho et al., 2020):
    the same, maximum over the golds. `musique` (Trivedi et al., 2022): em, f1, maximum over the golds,
    with no rule for yes and no. `deepnote` (Wang et al., 2024, section 4): acc, f1, em, maximum over
    the golds. The scorers' rounding for print is left to whoever prints.

    Raises:
        UserError: there is no such family.
        ValueError: `golds` is empty.
    """
    scorer: Callable[[str, list[str]], dict[str, float]] = choose("metric family", family, FAMILIES)
    if not golds:
        raise ValueError("golds is empty: a prediction cannot be scored without a gold answer")
    return scorer(prediction, golds)
