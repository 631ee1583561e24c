"""The metric and the metric family; each family is declared in its own file."""

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Literal

from notewriter.ground.records import Question


@dataclass(frozen=True, slots=True)
class Metric:
    """A number per question.

    Args:
        name: its key in files.
        label: its name in tables and plots.
        meaning: its meaning, in one sentence.
        better: which direction is better; None where neither is.
        decimals: how many are shown.
        share: whether its values lie in [0, 1], so that tables in percent multiply them by 100. False for counts.
    """

    name: str
    label: str
    meaning: str
    better: Literal["higher", "lower"] | None = "higher"
    decimals: int = 3
    share: bool = True


@dataclass(frozen=True)
class Family:
    """The metrics of a benchmark, computed as its own scorer does.

    Args:
        score: `score(prediction, question)` returns a finite number for each metric by name. The prediction is the
            answer alone, without note and passages. Rounding for print is left out, except where a scorer rounds single
            items.
        metrics: what `score` returns.
        check: raises `UserError` where a required package is not installed.
        golds: what `score` compares a prediction with, for families that need more than the question's gold answers;
            empty or raising where the question lacks it. Cheap, as it is called for all questions before a run.
    """

    score: Callable[[str, Question], dict[str, float]]
    metrics: tuple[Metric, ...]
    check: Callable[[], object] = lambda: None
    golds: Callable[[Question], Sized] = lambda question: question.answers

    def __post_init__(self) -> None:
        if isinstance(self.metrics, Metric):
            raise ValueError("metrics: is one Metric; give a tuple, (Metric(...),)")
        names = [metric.name for metric in self.metrics]
        if len(set(names)) < len(names):
            raise ValueError(f"metrics: a name is given twice; the names are: {', '.join(names)}")


EXACT_MATCH = Metric(
    "em", "Exact match", "Share of predictions that equal a gold answer up to case, punctuation and articles."
)
F1 = Metric("f1", "Token F1", "Overlap of the words of prediction and gold, 0 to 1, for the best-matching gold answer.")
ACCURACY = Metric("acc", "Accuracy", "Share of predictions that are right according to the benchmark's own rule.")
