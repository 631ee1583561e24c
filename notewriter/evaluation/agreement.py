"""The agreement of two raters: the share of items, and Cohen's kappa, with intervals over questions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from notewriter.artifacts.metrics import Interval
from notewriter.evaluation.statistics import BLOCK, TAIL
from notewriter.ground.lazy import Lazy

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
else:
    np = Lazy("numpy")

RESAMPLES = 10_000


class Agreement(NamedTuple):
    """The agreement of two raters.

    Attributes:
        items: how many both rated.
        share: of the items that both put into the same category, in [0, 1].
        kappa: Cohen's kappa, from -1 to 1; None where both put all items into one category, which leaves it undefined.
    """

    items: int
    share: Interval
    kappa: Interval | None


def agreement(ratings: Sequence[tuple[Hashable, Hashable]], clusters: Sequence[Hashable]) -> Agreement:
    """The agreement of two raters, with 95% percentile bootstrap intervals.

    Kappa is (p_o - p_e) / (1 - p_e): the observed share p_o above the share p_e that two raters with these frequencies
    of categories would reach by chance (Cohen, A coefficient of agreement for nominal scales, 1960). Items of a
    question are not independent, so whole clusters are resampled; resamples in which kappa is undefined are left out.

    Args:
        ratings: both raters' categories of each item.
        clusters: the question of each item.

    Raises:
        ValueError: no ratings, or not as many clusters.
    """
    if not ratings or len(ratings) != len(clusters):
        raise ValueError(f"{len(ratings)} ratings and {len(clusters)} clusters; give at least one, and as many of both")
    # In the order of their names, so that the order of the items makes no difference.
    categories = {
        name: place for place, name in enumerate(sorted({each for pair in ratings for each in pair}, key=str))
    }
    rows = {name: place for place, name in enumerate(sorted(set(clusters), key=str))}
    size = len(categories)
    counts = np.zeros((len(rows), size, size))
    for (first, second), cluster in zip(ratings, clusters, strict=True):
        counts[rows[cluster], categories[first], categories[second]] += 1
    generator = np.random.default_rng(0)
    block = max(1, BLOCK // len(rows))
    even = np.full(len(rows), 1 / len(rows))
    tables = np.concatenate(
        [
            np.tensordot(generator.multinomial(len(rows), even, size=min(block, RESAMPLES - start)), counts, 1)
            for start in range(0, RESAMPLES, block)
        ]
    )
    shares, kappas = _share_and_kappa(tables)
    (share,), (kappa,) = _share_and_kappa(counts.sum(axis=0, keepdims=True))

    def interval(value: float, drawn: Floats) -> Interval:
        low, high = np.nanquantile(drawn, [TAIL, 1 - TAIL])
        return Interval(float(value), float(low), float(high))

    return Agreement(len(ratings), interval(share, shares), None if np.isnan(kappa) else interval(kappa, kappas))


def _share_and_kappa(tables: Floats) -> tuple[Floats, Floats]:
    """The observed agreement and kappa of contingency tables of the shape (tables, categories, categories)."""
    totals = tables.sum(axis=(1, 2))
    share = np.trace(tables, axis1=1, axis2=2) / totals
    chance = (tables.sum(axis=1) * tables.sum(axis=2)).sum(axis=1) / totals**2
    # Undefined where both raters used one and the same category only.
    room = np.where(chance < 1, 1 - chance, np.nan)
    return share, (share - chance) / room
