"""What the sampling rollouts of a question yield and cost."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from notewriter.artifacts.pairs import Pair
from notewriter.artifacts.rollouts import Agreement, Drop, PairsRollout, StageUsage, UnreadableReplies


@dataclass
class Judged:
    """The result of one prompt at a trained stage.

    Args:
        stage: the stage.
        row: the pair, or None.
        reason: why there is no pair.
        agreements: for each judge asked in two orders, whether it named the same candidates both times.
        unreadable: how many of the judges' replies could not be parsed.
        refusal: why the endpoint refused a judge's request; empty if it did not.
    """

    stage: str
    row: Pair | None = None
    reason: str = ""
    agreements: list[bool] = field(default_factory=list)
    unreadable: int = 0
    refusal: str = ""


@dataclass
class Harvest:
    """What the sampling rollouts of one question yield and cost.

    Args:
        judged: one entry per prompt at a trained stage, in the order in which the prompts came up.
        refused: the methods that ended because the endpoint refused a request.
        usage: (stage, role) -> calls and tokens of every distinct call.
    """

    judged: list[Judged] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    usage: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Pair]:
        """The pairs."""
        return [judged.row for judged in self.judged if judged.row]

    @property
    def drops(self) -> list[Drop]:
        """The prompts without a pair, and the methods that ended early."""
        drops = [Drop(stage=judged.stage, reason=judged.reason) for judged in self.judged if judged.reason]
        # Not the endpoint's own message, which would make every refusal a separate reason; the trace has it.
        return drops + [Drop(stage=f"{method}/*", reason="the endpoint refused the request") for method in self.refused]

    def record(self, question_id: str, traces: list[dict[str, Any]]) -> PairsRollout:
        """The line of the journal."""
        record: PairsRollout = {
            "question_id": question_id,
            "rows": self.rows,
            "drops": self.drops,
            "agreements": [
                Agreement(stage=judged.stage, agreed=agreed) for judged in self.judged for agreed in judged.agreements
            ],
            "unreadable": [
                UnreadableReplies(stage=judged.stage, replies=judged.unreadable)
                for judged in self.judged
                if judged.unreadable
            ],
            "usage": [
                StageUsage(stage=stage, role=role, tokens=dict(self.usage[stage, role]))
                for stage, role in sorted(self.usage)
            ],
            "traces": traces,
        }
        if refusals := [judged.refusal for judged in self.judged if judged.refusal]:
            record["refusals"] = refusals
        return record
