"""Sums over the rollouts of a dataset, for stats.json; each record is added once and not kept."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from notewriter.artifacts.statistics import BEYOND_QUOTA, ChainsTotals
from notewriter.rollouts.shortcuts import SidesTally
from notewriter.rollouts.usage import Usage


class Tally(ABC):
    """Sums over records."""

    @abstractmethod
    def add(self, record: Any) -> None:
        """Add the record of a finished question."""

    @abstractmethod
    def totals(self) -> Any:
        """The sums, as stats.json has them."""

    def warnings(self) -> list[str]:
        """The warnings for a reader of the summary, a line each."""
        return []


class StagesTally(Tally):
    """The rows of each stage, the reasons of prompts without rows, and the cost of all; see `GoldTotals`."""

    def __init__(self, stages: Collection[str], name: str) -> None:
        self._stages, self._name = stages, name
        self.rows: Counter[str] = Counter()
        self._dropped: dict[str, Counter[str]] = {stage: Counter() for stage in stages}
        self._usage = Usage()

    def add(self, record: Any) -> None:
        """Add the record of a finished question."""
        self.rows.update(row["stage"] for row in record["rows"])
        for drop in record["drops"]:
            self._dropped.setdefault(drop["stage"], Counter())[drop["reason"]] += 1
        self._usage.add(record)

    def totals(self) -> Any:
        """The sums, as stats.json has them; the rows of a stage under the tally's `name`."""
        return {"stages": self._yields(), **self._usage.to_dict()}

    def _yields(self) -> Any:
        return {
            stage: {self._name: self.rows[stage], "dropped": dict(sorted(reasons.items()))}
            for stage, reasons in self._dropped.items()
        }


class PairsTally(StagesTally):
    """The pairs of each stage, the judges' agreement with themselves, the sides' differences, and the cost of all.

    See `PairsTotals`.

    Args:
        judges: stage -> its judge, or its judges in order.
        dev: the ids of the questions whose pairs are not for training.
        quotas: stage -> the training pairs wanted.
        answers: question id -> its gold answers.
    """

    def __init__(
        self,
        judges: Mapping[str, str | Sequence[str]],
        dev: Collection[str],
        quotas: Mapping[str, int],
        answers: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(judges, "pairs")
        self._training: Counter[str] = Counter()
        self._judges, self._dev, self._quotas = judges, dev, quotas
        self._sides = SidesTally(answers)
        self._rolled_out = 0
        self._agreement: dict[str, Counter[str]] = {}
        self._unreadable: Counter[str] = Counter()

    def add(self, record: Any) -> None:
        """Add the record of a finished question."""
        super().add(record)
        self._rolled_out += 1
        self._training.update(row["stage"] for row in record["rows"] if row["question_id"] not in self._dev)
        self._sides.add(record["rows"])
        for each in record["agreements"]:
            self._agreement.setdefault(each["stage"], Counter()).update(asked=1, agreed=int(each["agreed"]))
        for unreadable in record.get("unreadable", ()):
            self._unreadable[unreadable["stage"]] += unreadable["replies"]

    def totals(self) -> Any:
        """The sums, as stats.json has them."""
        return {
            "judges": {
                stage: names if isinstance(names, str) else ", ".join(names) for stage, names in self._judges.items()
            },
            **({"quotas": self._quotas} if self._quotas else {}),
            "shortcuts": self._sides.totals(),
            "questions_rolled_out": self._rolled_out,
            "stages": self._yields(),
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

    def warnings(self) -> list[str]:
        """Stages below their quota, and those in which one feature predicts most chosen sides."""
        below = (stage for stage, quota in self._quotas.items() if self._training[stage] < quota)
        return [
            *(f"{stage}: {self._training[stage]} training pairs, below its quota" for stage in below),
            *self._sides.warnings(),
        ]

    def _yield(self, stage: str) -> float | None:
        reasons = self._dropped[stage]
        prompts = self.rows[stage] + reasons.total()
        return round((self.rows[stage] + reasons[BEYOND_QUOTA]) / prompts, 4) if prompts else None


class ChainsTally(Tally):
    """The lengths of the kept chains, the reasons against the others, and the cost of all; see `ChainsTotals`."""

    def __init__(self) -> None:
        self._dropped: Counter[str] = Counter()
        self._steps: Counter[int] = Counter()
        self._events: Counter[str] = Counter()
        self._f1_of_the_kept = 0.0
        self._usage = Usage()

    def add(self, record: Any) -> None:
        """Add the record of a question: its chain, as a row or as a drop."""
        self._events.update(record["trace"]["counts"])
        self._dropped.update(drop["reason"] for drop in record["drops"])
        self._usage.add(record)
        for row in record["rows"]:
            self._steps[row["steps"]] += 1
            self._f1_of_the_kept += row["f1"]

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
