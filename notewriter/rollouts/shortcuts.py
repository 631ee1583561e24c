"""Shortcuts: features other than content that separate the chosen from the rejected sides of pairs.

A preference model prefers whatever tells the sides apart most easily (Singhal et al. 2023, arXiv 2310.03716: mostly
length). Each feature here is a number of one text, or of how it was sampled, that does not depend on whether the text
is right; one that alone names the chosen side of most pairs is what DPO is likely to learn.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from notewriter.artifacts.statistics import Shortcuts
from notewriter.ground.text import bare_words

NGRAM = 4
"""Words in a row that count as copied from the prompt."""

FOLDS = 5
"""Parts of the questions, each of which is predicted from the others."""

WARNING = 0.8
"""The share of pairs from which a feature that predicts it is worth a warning."""

FEWEST = 20
"""The least number of pairs for a statement on a feature."""

OPENINGS = re.compile(
    r"\W*(based on|according to|here(?:'s| is| are)|sure|certainly|of course|the (?:passages?|documents?|text|question)"
    r"|note|answer|to answer|in (?:summary|conclusion))\b",
    re.IGNORECASE,
)
REFUSALS = re.compile(
    r"\b(no (?:relevant |such |further )?(?:information|idea|evidence)"
    r"|not (?:mentioned|provided|specified|stated|given|known)"
    r"|(?:cannot|can't|could not|unable to|do(?:es)? not|don't|doesn't) (?:be )?"
    r"(?:answer|determined?|find|found|know|say|mention|provide|contain|specify)|unknown|insufficient|i'm sorry)\b",
    re.IGNORECASE,
)
LIST_ITEM = re.compile(r"^\s*(?:[-*•+]|\(?\d{1,3}[.)])\s", re.MULTILINE)
FINISHED = re.compile(r"[.!?…。！？][\"'”’)\]*_`}]*\s*$")


@dataclass(frozen=True)
class Side:
    """One side of a pair.

    Attributes:
        text: what the assistant wrote.
        prompt: what it replied to.
        answers: the gold answers; empty if unknown.
        cut: whether it was cut at its token limit.
        temperature: what it was sampled at; None if unknown or not sampled.
    """

    text: str
    prompt: str
    answers: Sequence[str] = ()
    cut: bool = False
    temperature: float | None = None


@dataclass(frozen=True)
class Feature:
    """A feature of a side.

    Attributes:
        name: what it is called on the page.
        more: what the side does that is higher in it, for messages.
        value: its value; None where it does not exist.
        content: whether it is about the content of the text, and so no shortcut.
    """

    name: str
    more: str
    value: Callable[[Side], float | None]
    content: bool = False


def _ngrams(text: str) -> list[tuple[str, ...]]:
    words = bare_words(text)
    return [tuple(words[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1)]


@functools.lru_cache(maxsize=2)
def _prompt_ngrams(prompt: str) -> frozenset[tuple[str, ...]]:
    """Remembered for the other side of a pair."""
    return frozenset(_ngrams(prompt))


def _copied(side: Side) -> float | None:
    ngrams, prompt = _ngrams(side.text), _prompt_ngrams(side.prompt)
    return sum(ngram in prompt for ngram in ngrams) / len(ngrams) if ngrams else None


def _repeated(side: Side) -> float:
    ngrams = _ngrams(side.text)
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def _punctuation(side: Side) -> float:
    marks = sum(not character.isalnum() and not character.isspace() for character in side.text)
    return marks / max(1, len(side.text))


def _position(side: Side) -> float | None:
    """The words before the first gold answer as a share of all; None if there is none."""
    words = bare_words(side.text)
    places = [
        start
        for answer in map(bare_words, side.answers)
        for start in range(len(words) - len(answer) + 1)
        if answer and words[start : start + len(answer)] == answer
    ]
    return min(places) / len(words) if places else None


FEATURES = (
    Feature("words", "is longer", lambda side: float(len(bare_words(side.text)))),
    Feature("lines", "has more lines", lambda side: float(len(side.text.strip().splitlines()))),
    Feature("list items", "has more list items", lambda side: float(len(LIST_ITEM.findall(side.text)))),
    Feature("punctuation", "has more punctuation", _punctuation),
    Feature("digits", "has more digits", lambda side: float(sum(map(str.isdigit, side.text)))),
    Feature("capital at the start", "starts with a capital", lambda side: float(side.text.strip()[:1].isupper())),
    Feature("stock opening", "starts with a stock phrase", lambda side: float(bool(OPENINGS.match(side.text)))),
    Feature("refusal", "refuses", lambda side: float(bool(REFUSALS.search(side.text)))),
    Feature("question mark", "asks", lambda side: float("?" in side.text)),
    Feature("finished sentence", "ends with a sentence", lambda side: float(bool(FINISHED.search(side.text)))),
    Feature("cut at the token limit", "is cut at the token limit", lambda side: float(side.cut)),
    Feature("temperature", "was sampled at a higher temperature", lambda side: side.temperature),
    Feature("repeated words", "repeats itself more", _repeated),
    Feature("copied from the prompt", "copies more of the prompt", _copied),
    Feature("gold answer", "has the gold answer", lambda side: float(_position(side) is not None), content=True),
    Feature("place of the gold answer", "has the gold answer later", _position, content=True),
)


def sides(pair: Mapping[str, Any], answers: Sequence[str] = ()) -> tuple[Side, Side]:
    """The chosen and the rejected side of a row of pairs; `answers` are the question's gold answers, if known."""
    prompt = "\n".join(message["content"] for message in pair["prompt"])

    def side(name: str) -> Side:
        source = pair.get(f"{name}_source") or {}
        limit, tokens = source.get("max_tokens"), pair.get(f"{name}_tokens")
        cut = limit is not None and tokens is not None and tokens >= limit
        return Side(pair[name][-1]["content"], prompt, answers, cut, source.get("temperature"))

    return side("chosen"), side("rejected")


def differences(chosen: Side, rejected: Side) -> list[float]:
    """For each of `FEATURES`, the chosen side's value less the rejected one's; 0 where one of them has none."""
    values = ((feature.value(chosen), feature.value(rejected)) for feature in FEATURES)
    return [0.0 if one is None or other is None else one - other for one, other in values]


@dataclass(frozen=True)
class Separation:
    """The separation of the sides of a set of pairs by a feature, or by all of them.

    Attributes:
        pairs: the number of pairs.
        higher: how many have a higher value on the chosen side.
        lower: how many on the rejected side; the others are equal.
    """

    pairs: int
    higher: int
    lower: int

    @property
    def share(self) -> float:
        """The share of pairs where the chosen side is higher, in [0, 1]; equal ones count half."""
        return (self.higher + (self.pairs - self.higher - self.lower) / 2) / self.pairs

    @property
    def predicts(self) -> float:
        """The share of pairs whose chosen side the feature predicts, in [0.5, 1], by the better of higher and lower."""
        return max(self.share, 1 - self.share)


def separations(rows: Sequence[Sequence[float]]) -> list[Separation]:
    """For each of `FEATURES`, how it separates the pairs with these `differences`, a row a pair."""
    matrix = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(FEATURES))
    above, below = (matrix > 0).sum(axis=0).tolist(), (matrix < 0).sum(axis=0).tolist()
    return [Separation(len(rows), higher, lower) for higher, lower in zip(above, below, strict=True)]


def strongest(rows: Sequence[Sequence[float]]) -> tuple[Feature, Separation]:
    """The feature that predicts most of the pairs with these `differences`, of those that are not content."""
    measures = [each for each in zip(FEATURES, separations(rows), strict=True) if not each[0].content]
    return max(measures, key=lambda each: each[1].predicts)


def warning(stage: str, rows: Sequence[Sequence[float]]) -> str | None:
    """A line about the feature of a stage's pairs that predicts most, of those that are not content.

    None if it predicts at most `WARNING` of the pairs, or if there are fewer than `FEWEST`; `rows` are their
    `differences`.
    """
    if len(rows) < FEWEST:
        return None
    feature, separation = strongest(rows)
    if separation.predicts <= WARNING:
        return None
    return (
        f"{stage}: the side that {feature.more} is {'chosen' if separation.share > 0.5 else 'rejected'} in "
        f"{separation.predicts:.0%} of {len(rows)} pairs, and DPO may learn just that"
    )


def all_together(rows: Sequence[Sequence[float]], questions: Sequence[str]) -> Separation | None:
    """The prediction of the chosen side by all features other than content, on questions that they were not fitted on.

    A logistic regression of the differences without an intercept, so that it cannot prefer a side by its place. Its
    ridge penalty is 1, on the weights of features scaled to a root mean square of 1. Questions are divided into `FOLDS`
    parts in the order in which they come up.

    Args:
        rows: the `differences` of each pair.
        questions: the question of each pair.

    Returns:
        The pairs whose chosen side got more (`higher`) and less (`lower`) than half of the probability; None with fewer
        than `FEWEST` pairs or than `FOLDS` questions.
    """
    numbers = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    if len(rows) < FEWEST or len(numbers) < FOLDS:
        return None
    used = [place for place, feature in enumerate(FEATURES) if not feature.content]
    matrix = np.asarray(rows, dtype=np.float64)[:, used]
    fold = np.array([numbers[question] % FOLDS for question in questions])
    scores = np.zeros(len(rows))
    for held_out in range(FOLDS):
        fitted = matrix[fold != held_out]
        scale = np.sqrt((fitted**2).mean(axis=0))
        scale[scale == 0] = 1.0
        scores[fold == held_out] = matrix[fold == held_out] / scale @ preferences(fitted / scale)
    return Separation(len(rows), int((scores > 1e-9).sum()), int((scores < -1e-9).sum()))


class SidesTally:
    """The differences between the sides of each stage's pairs, other than their content.

    `answers` are the gold answers by question id, as far as they are known.
    """

    def __init__(self, answers: Mapping[str, Sequence[str]] | None = None) -> None:
        self._answers = answers or {}
        self._rows: dict[str, list[list[float]]] = {}
        self._questions: dict[str, list[str]] = {}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add pairs."""
        for row in rows:
            both = sides(row, self._answers.get(row["question_id"], ()))
            self._rows.setdefault(row["stage"], []).append(differences(*both))
            self._questions.setdefault(row["stage"], []).append(row["question_id"])

    def totals(self) -> dict[str, Shortcuts]:
        """The separations by stage, as stats.json has them."""
        told: dict[str, Shortcuts] = {}
        for stage, rows in sorted(self._rows.items()):
            named = zip(FEATURES, separations(rows), strict=True)
            together = all_together(rows, self._questions[stage])
            told[stage] = {
                "pairs": len(rows),
                "features": {
                    feature.name: {
                        "chosen_higher": each.higher,
                        "rejected_higher": each.lower,
                        "predicts": round(each.predicts, 4),
                    }
                    for feature, each in sorted(named, key=lambda pair: -pair[1].predicts)
                },
                "together": round(together.share, 4) if together else None,
            }
        return told

    def warnings(self) -> list[str]:
        """A line for each stage in which one feature predicts most chosen sides."""
        named = (warning(stage, rows) for stage, rows in sorted(self._rows.items()))
        return [line for line in named if line]


def preferences(
    differences: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The weights w that maximise sum log sigmoid(d w) - |w|^2 / 2 over the rows d, by Newton's method.

    That is a logistic regression on differences, of the preferred side less the other, with a ridge penalty of 1.
    """
    weights = np.zeros(differences.shape[1])
    for _ in range(25):
        chance = 1 / (1 + np.exp(-np.clip(differences @ weights, -30, 30)))
        gradient = differences.T @ (1 - chance) - weights
        curvature = (differences * (chance * (1 - chance))[:, None]).T @ differences + np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights = weights + step
        if float(np.abs(step).max()) < 1e-8:
            break
    return weights
