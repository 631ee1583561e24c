"""metrics.json: a run's mean scores with their intervals, and its mean costs per question."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from notewriter.artifacts.predictions import COSTS
from notewriter.artifacts.reading import Artifact, record_of, write_json
from notewriter.ground.errors import UserError

METRICS_SCHEMA = "notewriter/metrics/1"

REMEDY = "run the evaluation again"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the bounds of its confidence interval, in the unit of the values."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside the interval."""
        return self.low > 0 or self.high < 0

    def text(self, decimals: int = 3, sign: str = "") -> str:
        """Its form in tables: `0.500 [0.400, 0.600]`; `sign` is `+` for differences."""
        mean, low, high = (f"{each:{sign},.{decimals}f}" for each in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"


class FewerSearches(TypedDict):
    """The number of right answers, and of those among them with fewer searches than gold documents."""

    right: int
    fewer: int


class CutReplies(TypedDict):
    """A stage's number of replies, and of those cut by `max_tokens` or earlier, at the end of the context."""

    replies: int
    cut: int
    at_context_end: int


class Summary(TypedDict):
    """The part of metrics.json that follows from the predictions.

    `metrics` maps a score to its mean over the questions that have it, `per_question` each of `COSTS` to its mean;
    `fewer_searches` is None where no question names its gold documents or nothing was searched.
    """

    questions: int
    errors: int
    metrics: dict[str, Interval]
    per_question: dict[str, float]
    fewer_searches: FewerSearches | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """A run's metrics; see `Summary` for those that follow from the predictions.

    Args:
        name: the run's name in tables.
        dataset: the benchmark.
        method: the method.
        model: the model's name.
        family: the metric family that scored the answers.
        questions: how many.
        errors: questions without an answer.
        metrics: score -> mean with its interval.
        per_question: cost -> mean.
        fewer_searches: see `FewerSearches`.
        estimate: what a dry run predicted for this run.
        config_hash: a hash of all settings that can change a result.
        version: the version of notewriter.
        judged: judgement -> the judge's model and what came of it (`notewriter.evaluation.judgements.summary_of`).
        cut: stage -> how many of its replies were cut; None in metrics.json of versions that did not count them.
        unknown_marks: role -> marks of no prompt with which a tenth of its replies begin -> how many.
        controls: note without a model, or constant answer in quotes -> score -> mean with its interval.
    """

    name: str
    dataset: str
    method: str
    model: str
    family: str
    questions: int
    errors: int
    metrics: dict[str, Interval]
    per_question: dict[str, float]
    fewer_searches: FewerSearches | None = None
    estimate: dict[str, object] | None = None
    config_hash: str
    version: str
    judged: dict[str, dict[str, object]] | None = None
    cut: dict[str, CutReplies] | None = None
    unknown_marks: dict[str, dict[str, int]] | None = None
    controls: dict[str, dict[str, Interval]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The content of metrics.json, with its schema; values of None are left out."""
        return {key: value for key, value in record_of(self, METRICS_SCHEMA).items() if value is not None}


def read_metrics(path: Path) -> Metrics:
    """A run's metrics.json.

    Raises:
        UserError: the folder or file is missing, or it is not what an evaluation writes.
    """
    metrics = Artifact(Metrics, METRICS_SCHEMA, REMEDY).read(path)
    if missing := [cost for cost in COSTS if cost not in metrics.per_question]:
        raise UserError(f"{path}: per_question has no {missing[0]!r}; {REMEDY}")
    return metrics


def write_metrics(path: Path, metrics: Metrics) -> None:
    """Write metrics.json.

    Raises:
        UserError: it cannot be written.
    """
    write_json(path, metrics.to_dict())
