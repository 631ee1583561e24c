"""retrieval.json: the supporting passages that chains of retrievers find, and their speed."""

from dataclasses import dataclass

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.reading import Artifact

NAME = "retrieval.json"


@dataclass(frozen=True)
class PartSeconds:
    """A part of a chain: mean milliseconds per search, and mean number of passages returned."""

    part: str
    milliseconds: float
    found: float


@dataclass(frozen=True)
class ChainResult:
    """The passages that a chain found.

    Args:
        measures: measure -> mean with its 95% bootstrap interval over the questions.
        scores: measure -> its value for each question, in the order of the questions.
        milliseconds: percentile of the latency of a search -> milliseconds.
        parts: what each part of the chain took.
    """

    measures: dict[str, Interval]
    scores: dict[str, list[float]]
    milliseconds: dict[str, float]
    parts: list[PartSeconds]


@dataclass(frozen=True)
class RetrievalResults:
    """The chains by name; the first is the one that others are compared with."""

    dataset: str
    questions: int
    chains: dict[str, ChainResult]


RETRIEVAL = Artifact(RetrievalResults, "notewriter/retrieval/2", "run notewriter evaluate --chains again")
