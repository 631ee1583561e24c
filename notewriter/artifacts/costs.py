"""costs.json: the calls, tokens, seconds and money of a run, or of judging it, by stage and role."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from notewriter.artifacts.reading import Artifact, record_of, write_json

COSTS_SCHEMA = "notewriter/costs/1"

REMEDY = "run the evaluation, or the judge whose costs these are, again"


@dataclass(slots=True)
class StageCosts:
    """Sums over the calls of a stage.

    Args:
        calls: model calls.
        prompt_tokens: tokens sent.
        cached_tokens: those of them that the server had in its prefix cache.
        completion_tokens: tokens received.
        seconds: time spent waiting for the model; concurrent calls add up.
        wall_seconds: time in which at least one of the calls was under way; None where that is unknown.
    """

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seconds: float
    wall_seconds: float | None = None

    def __add__(self, other: "StageCosts") -> "StageCosts":
        return StageCosts(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            seconds=self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The cost of a run.

    Args:
        stages: `stage (role)` -> sums.
        money: in the currency of the prices; None where no prices were given.
        counts: events that methods counted, by name.
        compression: words retrieved per word of the text that answers were written from (ReSP, section 5.2); None
            without retrieval.
        wall_seconds: time in which at least one call was under way; None where that is unknown. Less than the stages'
            together, which overlap.
    """

    stages: dict[str, StageCosts]
    money: float | None = None
    counts: dict[str, int]
    compression: float | None
    wall_seconds: float | None = None

    @property
    def total(self) -> StageCosts:
        """The sums over all stages."""
        return replace(sum(self.stages.values(), StageCosts(0, 0, 0, 0, 0.0)), wall_seconds=self.wall_seconds)

    def to_dict(self) -> dict[str, Any]:
        """The content of costs.json, with its schema."""
        record = record_of(self, COSTS_SCHEMA)
        if self.money is None:
            del record["money"]
        return record


def read_costs(path: Path) -> Costs | None:
    """A costs.json; None where there is none.

    Raises:
        UserError: the file is not what an evaluation or a judge writes.
    """
    return Artifact(Costs, COSTS_SCHEMA, REMEDY).read(path) if path.exists() else None


def write_costs(path: Path, costs: Costs) -> None:
    """Write costs.json.

    Raises:
        UserError: it cannot be written.
    """
    write_json(path, costs.to_dict())
