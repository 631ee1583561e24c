"""Quotas of training pairs: which stages still need pairs, and the end of the run when none does."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from notewriter.artifacts.pairs import Pair
from notewriter.artifacts.rollouts import PairsRollout
from notewriter.artifacts.statistics import BEYOND_QUOTA
from notewriter.data.dataset.faults import PairLengths, bounds_of, pair_lengths, unusual_sides, without_faults
from notewriter.ground.records import Question

LAG = 2
"""A block waits for the blocks up to this many before it, so that the slowest questions of one block delay nobody."""


class Quotas:
    """The stages that still need pairs of a question.

    Results must not depend on the order in which questions finish. So questions are taken in blocks. The stages sampled
    for a block depend only on the pairs of the complete blocks up to `LAG` before it, without pairs of unusual length,
    which would be dropped in the end. Without quotas there is one block, and nobody waits.
    """

    def __init__(
        self,
        stages: Sequence[str],
        quotas: Mapping[str, int],
        questions: Sequence[Question],
        block: int,
        dev: Collection[str] = (),
    ) -> None:
        self._stages, self._quotas, self._dev = stages, quotas, dev
        size = block if quotas else max(1, len(questions))
        self._block = {question.id: place // size for place, question in enumerate(questions)}
        self._unfinished = Counter(self._block.values())
        self._lengths: list[dict[str, list[tuple[PairLengths, bool]]]] = [{} for _ in self._unfinished]
        """For each block and stage, the lengths of the pairs, and whether they are for training."""
        self._known: list[list[str]] = []
        """The stages that each block samples, as far as known."""
        self._complete = [asyncio.Event() for _ in self._unfinished]
        """Set when this block and all before it are finished or will not be started."""

    def add(self, record: PairsRollout) -> None:
        """Count the pairs of a finished question, unless they are for dev."""
        block = self._block[record["question_id"]]
        for row in record["rows"]:
            pair = pair_lengths(row), record["question_id"] not in self._dev
            self._lengths[block].setdefault(row["stage"], []).append(pair)
        self._unfinished[block] -= 1
        while block < len(self._complete) and not self._unfinished[block] and self._is_complete(block - 1):
            self._complete[block].set()
            block += 1

    async def open_stages(self, question: Question) -> list[str]:
        """The stages below their quota; returns as soon as that is certain."""
        block = self._block[question.id]
        if block >= LAG:
            await self._complete[block - LAG].wait()
        stages = self._open(block)
        if not stages:
            # Its questions are not rolled out, so nobody needs to wait for them.
            for complete in self._complete[block:]:
                complete.set()
        return stages

    def to_do(self) -> int:
        """The number of questions left to roll out, as far as known; 0 only if none is."""
        left = 0
        for block, unfinished in self._unfinished.items():
            if self._is_complete(block - LAG) and not self._open(block):
                break
            left += unfinished
        return left

    def _is_complete(self, block: int) -> bool:
        return block < 0 or self._complete[block].is_set()

    def _open(self, block: int) -> list[str]:
        """The stages that a block samples, given that it does not have to wait; none after a block with none."""
        while len(self._known) <= block:
            ended = bool(self._known) and not self._known[-1]
            before = max(0, len(self._known) - LAG + 1)
            self._known.append([] if ended else [stage for stage in self._stages if not self._is_full(stage, before)])
        return self._known[block]

    def _is_full(self, stage: str, before: int) -> bool:
        """Whether the blocks before this one have the quota of a stage, without the pairs of unusual lengths."""
        if stage not in self._quotas:
            return False
        pairs = [pair for lengths in self._lengths[:before] for pair in lengths.get(stage, ())]
        usual = bounds_of(lengths for lengths, _ in pairs)
        kept = sum(is_training and not unusual_sides(lengths, usual) for lengths, is_training in pairs)
        return kept >= self._quotas[stage]


def within_quotas(
    quotas: Mapping[str, int],
    records: Iterable[PairsRollout],
    dev: Collection[str] = (),
    dev_share: float = 0.0,
) -> Iterator[PairsRollout]:
    """The records, with the pairs beyond a stage's quota moved to the drops.

    The quotas are of training pairs; those of the questions in `dev` have quotas of their own, of the same proportion
    to the training pairs as their questions: `dev_share / (1 - dev_share)`.
    """
    dev_quotas = {stage: round(quota * dev_share / (1 - dev_share)) for stage, quota in quotas.items()}
    kept: Counter[tuple[bool, str]] = Counter()

    def fault(row: Pair) -> str | None:
        in_dev, stage = row["question_id"] in dev, row["stage"]
        most = (dev_quotas if in_dev else quotas).get(stage)
        if most is not None and kept[in_dev, stage] >= most:
            return BEYOND_QUOTA
        kept[in_dev, stage] += 1
        return None

    return without_faults(records, fault)
