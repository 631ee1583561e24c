"""What a metric and a family of metrics are; each family says it of itself, in its own file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from notewriter.records import Question


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a question gets.

    Args:
        name: its key in files.
        label: what it is called on a page.
        meaning: what it says, in a sentence.
        better: which direction is better; None where neither is.
        decimals: as many are shown.
    """

    name: str
    label: str
    meaning: str
    better: Literal["higher", "lower"] | None = "higher"
    decimals: int = 3


@dataclass(frozen=True)
class Family:
    """The metrics of a benchmark under the rules of its own scorer.

    Args:
        score: `score(prediction, question)`, values in [0, 1] by the metrics' names; the scorers' rounding for print is
            left to whoever prints, except where a scorer rounds a single item.
        metrics: what `score` returns.
        check: raises `UserError` where what it needs is not installed.
    """

    score: Callable[[str, Question], dict[str, float]]
    metrics: tuple[Metric, ...]
    check: Callable[[], object] = lambda: None


EXACT_MATCH = Metric(
    "em", "Exact match", "Share of predictions that are a gold answer, but for case, punctuation and articles."
)
F1 = Metric("f1", "Token F1", "Overlap of the words of prediction and gold, 0 to 1; the best gold answer counts.")
ACCURACY = Metric("acc", "Accuracy", "Share of predictions that are right by the benchmark's own rule.")
