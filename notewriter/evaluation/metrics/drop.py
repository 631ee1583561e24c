"""DROP (Dua et al., 2019), as IRCoT scores IIRC: em and f1 over sets of tokens, in which numbers must agree.

Both are rounded to two places, as in the official scorer. Answers of several spans are aligned.
"""

import re
from collections.abc import Sequence

from notewriter.evaluation.metrics.metric import EXACT_MATCH, F1, Family
from notewriter.ground.records import Question
from notewriter.ground.text import ARTICLES, PUNCTUATION
from notewriter.ground.typed import misfit


def score(prediction: str, question: Question) -> dict[str, float]:
    """Against the best-matching gold answer; where IIRC's loader kept several spans, against all of them."""
    spans = question.metadata.get("spans")
    if isinstance(spans, list) and len(spans) > 1 and not misfit(spans, list[str]):
        return _spans_score(prediction, spans)
    return _span_score(prediction, question.answers)


def _span_score(prediction: str, golds: Sequence[str]) -> dict[str, float]:
    best = (0.0, 0.0)
    for gold in golds:
        # Blank golds are skipped, as in the scorer of IRCoT's IIRC.
        if gold.strip():
            em = float(" ".join(_tokens(prediction)) == " ".join(_tokens(gold)))
            best = max(best, (em, round(_f1(prediction, gold), 2)))
    return dict(zip(("em", "f1"), best, strict=True))


def _spans_score(prediction: str, golds: list[str]) -> dict[str, float]:
    """EM and F1 of an answer of several spans, aligned so that the sum of F1 is greatest (DROP's official scorer).

    F1 is the mean over the spans of the side that has more of them.
    """
    predicted, golds = _listed(prediction, len(golds)), [gold for gold in golds if gold.strip()]
    left, right = ([" ".join(_tokens(span)) for span in spans] for spans in (predicted, golds))
    # Bit set of the golds that are taken -> the greatest sum of F1.
    best = {0: 0.0}
    for span in predicted:
        values = [(1 << place, _f1(span, gold)) for place, gold in enumerate(golds)]
        for taken, total in list(best.items()):
            for bit, value in values:
                if value and not taken & bit:
                    best[taken | bit] = max(best.get(taken | bit, 0.0), total + value)
    f1 = round(max(best.values()) / max(len(predicted), len(golds)), 2)
    return {"em": float(set(left) == set(right) and len(left) == len(right)), "f1": f1}


def _listed(prediction: str, spans: int) -> list[str]:
    """The items of a prediction that is a list, separated by commas, semicolons and line breaks.

    An "and" separates the last two where there would be fewer items than gold `spans`. IRCoT's evaluation expects
    brackets around a list, which no prompt here asks for; they are ignored.
    """
    parts = [re.sub(r"^and\s+", "", part.strip()) for part in re.split(r"[,;\n]", prediction.strip("[] \n"))]
    if len(parts) < spans:
        *parts, last = parts
        parts += re.split(r"\s+and\s+", last, maxsplit=1)
    return [part for part in parts if part] or [""]


def _f1(prediction: str, gold: str) -> float:
    """F1 of the two sets of tokens; 0 where the gold contains numbers and the prediction none of them."""
    predicted, expected = set(_tokens(prediction)), set(_tokens(gold))
    numbers = {token for token in expected if _is_number(token)}
    if numbers and not numbers & predicted:
        return 0.0
    shared = len(predicted & expected)
    precision = shared / len(predicted) if predicted else 1.0
    recall = shared / len(expected) if expected else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _tokens(text: str) -> list[str]:
    """Tokens between spaces and hyphens, each normalised; numbers keep their sign and decimal point."""
    tokens = []
    for token in re.split("[ -]", text.lower()):
        bare = str(float(token)) if _is_number(token) else _number(token.translate(PUNCTUATION))
        tokens += ARTICLES.sub(" ", bare).split()
    return tokens


def _number(text: str) -> str:
    return str(float(text)) if _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


FAMILY = Family(score, (EXACT_MATCH, F1))
