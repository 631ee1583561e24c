"""FanOutQA (Zhu et al., 2024): loose and strict accuracy of a structured answer, and the token F1 of its text."""

import re
from collections.abc import Callable

from notewriter.evaluation.metrics.metric import F1, Family, Metric
from notewriter.evaluation.metrics.text import token_f1
from notewriter.ground.errors import UserError, install
from notewriter.ground.records import Question


def score(prediction: str, question: Question) -> dict[str, float]:
    """Loose and strict accuracy with the normalisation of the `fanoutqa` package, which lemmatises with spaCy.

    Also the token F1 against the answer as text, which NotesWriting reports (Table 2).
    """
    scores = accuracy(prediction, question.metadata["answer"], _normalize())
    return scores | {"f1": token_f1(prediction, question.answers[0])}


def _normalize() -> Callable[[str], str]:
    try:
        from fanoutqa.norm import normalize

        normalize("")
    except (ImportError, OSError) as error:
        raise UserError(
            f"metric family fanoutqa: needs the benchmark's package and spaCy's English model ({error}); "
            f"{install('fanoutqa')} and python -m spacy download en_core_web_sm"
        ) from error
    normalizer: Callable[[str], str] = normalize
    return normalizer


def accuracy(prediction: str, answer: object, normalize: Callable[[str], str]) -> dict[str, float]:
    """The share of a structured answer in the prediction (FanOutQA, Zhu et al., 2024, section 4).

    Every key and every value of the answer (a value, or a list or a mapping of values) is searched for as whole words.
    `loose` is the share found, `strict` is 1.0 where all are.
    """
    text = normalize(prediction)
    parts = [normalize(part) for part in _parts(answer)]
    found = [re.search(rf"\b{re.escape(part)}\b", text) is not None for part in parts]
    return {"loose": sum(found) / len(found), "strict": float(all(found))}


def _parts(answer: object) -> list[str]:
    """The keys and values of an answer, as text."""
    if isinstance(answer, dict):
        return [part for key, value in answer.items() for part in (str(key), *_parts(value))]
    if isinstance(answer, list):
        return [part for value in answer for part in _parts(value)]
    if isinstance(answer, bool):
        return ["yes" if answer else "no"]
    return [str(answer)]


FAMILY = Family(
    score,
    (
        Metric("loose", "Parts of the answer found", "Share of the parts of a structured answer in the prediction."),
        Metric(
            "strict",
            "All parts of the answer found",
            "Share of questions with all of them in the prediction.",
        ),
        F1,
    ),
    check=_normalize,
    golds=lambda question: _parts(question.metadata["answer"]),
)
