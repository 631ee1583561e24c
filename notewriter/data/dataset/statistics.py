"""Sums over the rollouts of a dataset, for stats.json; each record is added once and not kept."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from notewriter.artifacts.rollouts import ChainRollout, GoldRollout, PairsRollout, steps_of
from notewriter.artifacts.statistics import BEYOND_QUOTA, NAME, OF_NOTHING, ChainsTotals, GoldTotals, PairsTotals
from notewriter.ground.errors import UserError
from notewriter.rollouts.usage import Usage


class Made(NamedTuple):
    """What was made of a journal: a summary for the terminal, how many rows, and why others were not."""

    summary: str
    rows: int
    dropped: Counter[str]


def check_made(made: Made, folder: Path, errors: Counter[str]) -> None:
    """Check that something was made, else rename stats.json to `OF_NOTHING`; `errors` are those of the questions.

    Raises:
        UserError: nothing was; gives the commonest reason.
    """
    (folder / OF_NOTHING).unlink(missing_ok=True)
    if made.rows:
        return
    (folder / NAME).rename(folder / OF_NOTHING)
    # The endpoints' own words before the kinds that they fall into.
    reasons = (errors + made.dropped).most_common(1)
    why = "".join(f"; the commonest reason, {times} times: {reason}" for reason, times in reasons)
    raise UserError(
        f"{folder}: nothing was made{why or ' of no question'}; correct that, and run again (with --retry_errors if "
        "requests were refused)"
    )


class PairsTally:
    """What pairs were made, why others were not, and what all of them cost; see `PairsTotals`."""

    def __init__(self, stages: Collection[str]) -> None:
        self._stages = stages
        self._rolled_out = 0
        self._pairs: Counter[str] = Counter()
        self._dropped: dict[str, Counter[str]] = {stage: Counter() for stage in stages}
        self._agreement: dict[str, Counter[str]] = {}
        self._unreadable: Counter[str] = Counter()
        self._usage = Usage()

    def add(self, record: PairsRollout) -> None:
        """Add the record of a finished question."""
        self._rolled_out += 1
        self._pairs.update(row["stage"] for row in record["rows"])
        for drop in record["drops"]:
            self._dropped.setdefault(drop["stage"], Counter())[drop["reason"]] += 1
        for each in record["agreements"]:
            self._agreement.setdefault(each["stage"], Counter()).update(asked=1, agreed=int(each["agreed"]))
        for unreadable in record.get("unreadable", ()):
            self._unreadable[unreadable["stage"]] += unreadable["replies"]
        self._usage.add(record)

    def totals(self) -> PairsTotals:
        """The sums, as stats.json has them."""
        return {
            "questions_rolled_out": self._rolled_out,
            "stages": {
                stage: {"pairs": self._pairs[stage], "dropped": dict(sorted(reasons.items()))}
                for stage, reasons in self._dropped.items()
            },
            "yield": {stage: self._yield(stage) for stage in self._stages},
            "agreement": {
                stage: {
                    "asked": count["asked"],
                    "agreed": count["agreed"],
                    "rate": round(count["agreed"] / count["asked"], 4),
                }
                for stage, count in sorted(self._agreement.items())
            },
            "unreadable_judge_replies": dict(sorted(self._unreadable.items())),
            **self._usage.to_dict(),
        }

    def _yield(self, stage: str) -> float | None:
        reasons = self._dropped[stage]
        prompts = self._pairs[stage] + reasons.total()
        return round((self._pairs[stage] + reasons[BEYOND_QUOTA]) / prompts, 4) if prompts else None


class GoldTally:
    """What the gold evidence wrote, what it could not, and what the model cost; see `GoldTotals`."""

    def __init__(self, stages: Collection[str]) -> None:
        self._conversations: Counter[str] = Counter()
        self._dropped: dict[str, Counter[str]] = {stage: Counter() for stage in stages}
        self._usage = Usage()

    def add(self, record: GoldRollout) -> None:
        """Add the record of a finished question."""
        self._conversations.update(row["stage"] for row in record["rows"])
        for drop in record["drops"]:
            self._dropped.setdefault(drop["stage"], Counter())[drop["reason"]] += 1
        self._usage.add(record)

    def totals(self) -> GoldTotals:
        """The sums, as stats.json has them."""
        return {
            "stages": {
                stage: {"conversations": self._conversations[stage], "dropped": dict(sorted(reasons.items()))}
                for stage, reasons in self._dropped.items()
            },
            **self._usage.to_dict(),
        }


class ChainsTally:
    """How long the kept chains are, why others were dropped, and what all of them cost; see `ChainsStatistics`."""

    def __init__(self) -> None:
        self._dropped: Counter[str] = Counter()
        self._steps: Counter[int] = Counter()
        self._events: Counter[str] = Counter()
        self._f1_of_the_kept = 0.0
        self._usage = Usage()

    def add(self, record: ChainRollout, f1: float, fault: str | None) -> None:
        """Add a chain, its answer's F1 (0 to 1), and why it is dropped (None: it is kept)."""
        counts = record["trace"]["counts"]
        self._events.update(counts)
        self._usage.add(record)
        if fault is None:
            self._steps[steps_of(record)] += 1
            self._f1_of_the_kept += f1
        else:
            self._dropped[fault] += 1

    def totals(self) -> ChainsTotals:
        """The sums, as stats.json has them."""
        kept = self._steps.total()
        return {
            "dropped": dict(sorted(self._dropped.items())),
            "steps_of_the_kept": {str(steps): count for steps, count in sorted(self._steps.items())},
            "mean_f1_of_the_kept": round(self._f1_of_the_kept / kept, 4) if kept else None,
            "events": dict(sorted(self._events.items())),
            **self._usage.to_dict(),
        }
