"""Quotas: when a stage has its pairs it is no longer sampled, and when all have theirs no question is begun."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from notewriter.records import Question

LAG = 2
"""A block waits for the blocks up to the one before the last, so that stragglers of one block hold nobody up."""


class Quotas:
    """Which stages a question still samples.

    Results must not depend on which question happens to finish first. So questions are taken in blocks, and what
    the questions of a block sample hangs on the pairs of whole earlier blocks alone, those up to `LAG` before it.
    Without quotas there is one block, and nobody waits.
    """

    def __init__(
        self, stages: Sequence[str], quotas: Mapping[str, int], questions: Sequence[Question], block: int
    ) -> None:
        self._stages, self._quotas = stages, quotas
        size = block if quotas else max(1, len(questions))
        self._block = {question.id: place // size for place, question in enumerate(questions)}
        self._unfinished = Counter(self._block.values())
        self._pairs: list[Counter[str]] = [Counter() for _ in self._unfinished]
        self._whole = [asyncio.Event() for _ in self._unfinished]
        """Set where this block and all before it are finished, or not to be begun."""

    def add(self, record: dict[str, Any]) -> None:
        """Count a finished question's pairs."""
        block = self._block[record["question_id"]]
        self._pairs[block].update(row["stage"] for row in record["rows"])
        self._unfinished[block] -= 1
        while block < len(self._whole) and not self._unfinished[block] and self._is_whole(block - 1):
            self._whole[block].set()
            block += 1

    async def open_stages(self, question: Question) -> list[str]:
        """The stages that have not their quota yet, as soon as that is certain."""
        block = self._block[question.id]
        if block >= LAG:
            await self._whole[block - LAG].wait()
        stages = self._open(block)
        if not stages:
            # Its questions are not rolled out, so nobody need wait for them.
            for whole in self._whole[block:]:
                whole.set()
        return stages

    def to_do(self) -> int:
        """How many questions there are left to roll out, as far as is known; 0 only where nothing is left."""
        left = 0
        for block, unfinished in self._unfinished.items():
            if self._is_whole(block - LAG) and not self._open(block):
                break
            left += unfinished
        return left

    def _is_whole(self, block: int) -> bool:
        return block < 0 or self._whole[block].is_set()

    def _open(self, block: int) -> list[str]:
        kept = sum(self._pairs[: max(0, block - LAG + 1)], Counter[str]())
        return [stage for stage in self._stages if stage not in self._quotas or kept[stage] < self._quotas[stage]]


def within_quotas(quotas: Mapping[str, int], records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records with the pairs beyond a stage's quota moved to the drops."""
    kept: Counter[str] = Counter()
    for record in records:
        rows, drops = [], list(record["drops"])
        for row in record["rows"]:
            stage = row["stage"]
            if stage in quotas and kept[stage] >= quotas[stage]:
                drops.append({"stage": stage, "reason": "beyond the quota"})
            else:
                kept[stage] += 1
                rows.append(row)
        yield record | {"rows": rows, "drops": drops}
