"""Short-answer metrics, each under the rules of the benchmark that it is named after.

The scorers agree on SQuAD's normalisation and differ in the corner cases (yes and no, empty answers,
aliases), so a number means something only with its family's name beside it.
"""

import re
import string
from collections import Counter
from collections.abc import Callable
from typing import Any

from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.records import Question

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


def _drop(prediction: str, golds: list[str]) -> dict[str, float]:
    best = (0.0, 0.0)
    for gold in golds:
        # A blank gold is passed over, as by the scorer of IRCoT's IIRC.
        if gold.strip():
            em = float(" ".join(_drop_tokens(prediction)) == " ".join(_drop_tokens(gold)))
            best = max(best, (em, round(_drop_f1(prediction, gold), 2)))
    return dict(zip(("em", "f1"), best, strict=True))


def _drop_spans(prediction: str, golds: list[str]) -> dict[str, float]:
    """EM and F1 of an answer of several spans, each against the one that it fits best (DROP's official scorer).

    F1 is the mean over the spans of the side that has more of them.
    """
    predicted, golds = _listed(prediction, len(golds)), [gold for gold in golds if gold.strip()]
    left, right = ([" ".join(_drop_tokens(span)) for span in spans] for spans in (predicted, golds))
    # The best sum of F1 by the golds that are taken, as bits.
    best = {0: 0.0}
    for span in predicted:
        values = [(1 << place, _drop_f1(span, gold)) for place, gold in enumerate(golds)]
        for taken, total in list(best.items()):
            for bit, value in values:
                if value and not taken & bit:
                    best[taken | bit] = max(best.get(taken | bit, 0.0), total + value)
    f1 = round(max(best.values()) / max(len(predicted), len(golds)), 2)
    return {"em": float(set(left) == set(right) and len(left) == len(right)), "f1": f1}


def _listed(prediction: str, spans: int) -> list[str]:
    """The parts of a prediction that lists several things, between commas, semicolons and line breaks.

    The last ones may have an "and" between them, which parts them where there are fewer parts than gold `spans`.
    IRCoT's evaluation wants brackets around a list, which no prompt here asks for; they do no harm.
    """
    parts = [re.sub(r"^and\s+", "", part.strip()) for part in re.split(r"[,;\n]", prediction.strip("[] \n"))]
    if len(parts) < spans:
        *parts, last = parts
        parts += re.split(r"\s+and\s+", last, maxsplit=1)
    return [part for part in parts if part] or [""]


def _drop_f1(prediction: str, gold: str) -> float:
    """F1 of the two sets of tokens, 0 where the gold holds numbers and the prediction none of them."""
    predicted, expected = set(_drop_tokens(prediction)), set(_drop_tokens(gold))
    numbers = {token for token in expected if _is_number(token)}
    if numbers and not numbers & predicted:
        return 0.0
    shared = len(predicted & expected)
    precision = shared / len(predicted) if predicted else 1.0
    recall = shared / len(expected) if expected else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _drop_tokens(text: str) -> list[str]:
    """Tokens between spaces and hyphens, normalised one by one; a number keeps its sign and its point."""
    tokens = []
    for token in re.split("[ -]", text.lower()):
        bare = str(float(token)) if _is_number(token) else _number(token.translate(_PUNCTUATION))
        tokens += _ARTICLES.sub(" ", bare).split()
    return tokens


def _number(text: str) -> str:
    return str(float(text)) if _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _nq(prediction: str, golds: list[str]) -> dict[str, float]:
    return {
        "em": max(exact_match(prediction, gold) for gold in golds),
        "f1": max(token_f1(prediction, gold) for gold in golds),
    }


def _strategyqa(prediction: str, golds: list[str]) -> dict[str, float]:
    found = any(re.search(rf"\b{re.escape(gold.lower())}\b", prediction.lower()) for gold in golds)
    return {"acc": float(found)}


_QUOTED_ANSWER = re.compile(r'The answer to the question is "(.*?)"')


def _multihoprag(prediction: str, golds: list[str]) -> dict[str, float]:
    # The official scorer takes the answer out of the sentence that its prompt asks for.
    if quoted := _QUOTED_ANSWER.search(prediction):
        prediction = quoted[1]
    # The official formula counts a prediction that shares a single word with the gold, be it "the".
    shared = any(set(prediction.lower().split()) & set(gold.lower().split()) for gold in golds)
    return {"acc": float(shared), **_nq(prediction, golds)}


FAMILIES: dict[str, Callable[[str, list[str]], dict[str, float]]] = {
    "hotpotqa": _hotpotqa,
    "2wikimultihopqa": _2wikimultihopqa,
    "musique": _musique,
    "deepnote": _deepnote,
    "drop": _drop,
    "nq": _nq,
    "strategyqa": _strategyqa,
    "multihoprag": _multihoprag,
}
"""Family -> its scorer, `(prediction, golds) -> {metric: value in [0, 1]}`."""


def score(family: str, prediction: str, golds: list[str]) -> dict[str, float]:
    """Score one prediction against its gold answers by the rules of one family; values in [0, 1].

    `hotpotqa` (Yang et al., 2018): em, f1 against the first gold. `2wikimultihopqa` (Ho et al., 2020):
    the same, maximum over the golds. `musique` (Trivedi et al., 2022): em, f1, maximum over the golds,
    with no rule for yes and no. `deepnote` (Wang et al., 2024, section 4): acc, f1, em, maximum over
    the golds. `drop` (Dua et al., 2019, as IRCoT scores IIRC): em, f1 over sets of tokens, in which
    numbers must agree, rounded to two places (for several spans see `score_question`). `nq` (Lee et al., 2019): em,
    and f1 beside it.
    `strategyqa` (DeepNote's scorer): acc, whether the gold yes or no stands in the prediction as a word.
    `multihoprag` (Tang & Yang, 2024): acc by the official formula, which takes one shared word for a right
    answer (a prediction "the" is right about "the sun"), so em and f1 stand beside it; of a prediction that says
    `The answer to the question is "..."` the quotation counts. The scorers'
    rounding for print is left to whoever prints, except where a scorer rounds a single item (`drop`).

    Raises:
        UserError: there is no such family.
        ValueError: `golds` is empty.
    """
    scorer: Callable[[str, list[str]], dict[str, float]] = choose("metric family", family, FAMILIES)
    if not golds:
        raise ValueError("golds is empty: a prediction cannot be scored without a gold answer")
    return scorer(prediction, golds)


def _asqa(prediction: str, question: Question) -> dict[str, float]:
    """Short answers found in the normalised prediction, over the readings of the question (ALCE's str-em, str-hit)."""
    text = normalise(prediction)
    found = [any(normalise(answer) in text for answer in answers) for answers in question.metadata["short_answers"]]
    return {"str_em": sum(found) / len(found), "str_hit": float(all(found))}


def check_family(family: str) -> None:
    """Make sure that a family can score, before answers are paid for.

    Raises:
        UserError: there is no such family, or what it needs is not installed.
    """
    choose("metric family", family, dict.fromkeys(ALL_FAMILIES))
    if family == "fanoutqa":
        _fanoutqa_normalize()


def _fanoutqa(prediction: str, question: Question) -> dict[str, float]:
    """Loose and strict accuracy with the normalisation of the `fanoutqa` package, which lemmatises with spaCy.

    The token F1 against the answer as text stands beside them, since NotesWriting reports one (Table 2).
    """
    scores = fanout_accuracy(prediction, question.metadata["answer"], _fanoutqa_normalize())
    return scores | {"f1": token_f1(prediction, question.answers[0])}


def _fanoutqa_normalize() -> Callable[[str], str]:
    try:
        from fanoutqa.norm import normalize

        normalize("")
    except (ImportError, OSError) as error:
        raise UserError(
            f"metric family fanoutqa: needs the benchmark's package and spaCy's English model ({error}); "
            "run: pip install 'notewriter[fanoutqa]' && python -m spacy download en_core_web_sm"
        ) from error
    return normalize  # type: ignore[no-any-return]


def fanout_accuracy(prediction: str, answer: Any, normalize: Callable[[str], str]) -> dict[str, float]:
    """How much of a structured answer stands in the prediction (FanOutQA, Zhu et al., 2024, section 4).

    Every key and every value of the answer (a value, or a list or a mapping of values) is looked for as
    whole words. `loose` is the share that is found, `strict` 1.0 where all are.
    """
    text = normalize(prediction)
    texts = [
        normalize({True: "yes", False: "no"}[part] if isinstance(part, bool) else str(part)) for part in _parts(answer)
    ]
    found = [re.search(rf"\b{re.escape(part)}\b", text) is not None for part in texts]
    return {"loose": sum(found) / len(found), "strict": float(all(found))}


def _parts(answer: Any) -> list[Any]:
    if isinstance(answer, dict):
        return [part for key, value in answer.items() for part in (key, *_parts(value))]
    if isinstance(answer, list):
        return [part for value in answer for part in _parts(value)]
    return [answer]


QUESTION_FAMILIES: dict[str, Callable[[str, Question], dict[str, float]]] = {"asqa": _asqa, "fanoutqa": _fanoutqa}
"""Families whose gold is more than a list of answers; it is in the question's metadata."""

ALL_FAMILIES = (*FAMILIES, *QUESTION_FAMILIES)


def score_question(family: str, prediction: str, question: Question) -> dict[str, float]:
    """Score a prediction for a question: `score`, or `asqa` or `fanoutqa` from what its benchmark's loader kept.

    `drop` aligns the spans that IIRC's loader kept where there are several.

    Raises:
        UserError: no such family, or a question that lacks the gold of this one.
    """
    spans = question.metadata.get("spans")
    if family == "drop" and isinstance(spans, list) and len(spans) > 1:
        return _drop_spans(prediction, spans)
    if family not in QUESTION_FAMILIES:
        return score(family, prediction, list(question.answers))
    try:
        return QUESTION_FAMILIES[family](prediction, question)
    except KeyError as error:
        raise UserError(
            f"question {question.id}: has no {error} for metric family {family}; load it with dataset: {family}"
        ) from error
