"""How sure a mean over questions is: bootstrap intervals, alone and paired."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BLOCK = 2**21
"""Draws held in memory at once (16 MB of indices)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the lower and upper end of its confidence interval, in the unit of the values."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside the interval."""
        return self.low > 0 or self.high < 0


def bootstrap_interval(
    values: Sequence[float], *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """The mean of values, one a question, with its percentile bootstrap interval.

    Draws `resamples` samples of the same size with replacement and takes the quantiles of their means
    (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3). One seed, one interval.
    With fewer than some twenty values the interval is too narrow, and with one value it is a point.

    Raises:
        ValueError: no values, values that are not finite numbers, a confidence outside (0, 1), or
            fewer than one resample.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError("values must hold at least one number, in one dimension")
    if not np.isfinite(sample).all():
        raise ValueError("values must be finite numbers")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence ({confidence}) must lie between 0 and 1, for example 0.95")
    if resamples < 1:
        raise ValueError(f"resamples ({resamples}) must be at least 1")
    generator = np.random.default_rng(seed)
    rows = max(1, BLOCK // sample.size)
    means = np.concatenate(
        [
            sample[generator.integers(sample.size, size=(min(rows, resamples - start), sample.size))].mean(axis=1)
            for start in range(0, resamples, rows)
        ]
    )
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(sample.mean()), float(low), float(high))


def paired_interval(
    before: Sequence[float],
    after: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """The mean of `after - before` over the same questions in the same order, with its bootstrap interval.

    Pairing takes out what makes some questions harder than others for both, so the interval is mostly
    narrower than the two runs' own intervals suggest.

    Raises:
        ValueError: lengths that differ, or what `bootstrap_interval` refuses.
    """
    if len(before) != len(after):
        raise ValueError(f"before has {len(before)} values and after {len(after)}; give one of each for every question")
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    return bootstrap_interval(differences.tolist(), confidence=confidence, resamples=resamples, seed=seed)
