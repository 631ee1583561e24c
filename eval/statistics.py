"""How sure a mean over questions is: bootstrap intervals, alone and paired, and tests of paired differences."""

import math
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


def mcnemar(before: Sequence[float], after: Sequence[float]) -> float:
    """Two-sided exact p-value of McNemar's test on right (1) and wrong (0) of the same questions.

    Only the questions that changed sides tell: under the null hypothesis each did so with even odds
    (McNemar, 1947; the exact binomial form, which holds for few changes too).

    Raises:
        ValueError: lengths that differ, or values other than 0 and 1.
    """
    if not {*before, *after} <= {0, 1}:
        raise ValueError("McNemar's test takes 0 and 1 only; use permutation_test for other scores")
    gained = sum(left < right for left, right in zip(before, after, strict=True))
    lost = sum(left > right for left, right in zip(before, after, strict=True))
    changed = gained + lost
    tail = sum(math.comb(changed, count) for count in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**changed)


def permutation_test(
    before: Sequence[float], after: Sequence[float], *, resamples: int = 10_000, seed: int = 0
) -> float:
    """Two-sided p-value of the mean difference of paired scores, by flipping the signs of differences at random.

    Under the null hypothesis each question's two scores could as well be the other way round (Fisher's
    randomisation test). The smallest value it can give is 1 / (resamples + 1).

    Raises:
        ValueError: lengths that differ or no values.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"before has {len(before)} values and after {len(after)}; give one of each for every question")
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    observed = abs(differences.sum())
    generator = np.random.default_rng(seed)
    rows = max(1, BLOCK // differences.size)
    extreme = 0
    for start in range(0, resamples, rows):
        signs = generator.integers(2, size=(min(rows, resamples - start), differences.size), dtype=np.int8) * 2 - 1
        # A sum that is the observed one but for rounding is as extreme as it.
        extreme += int((np.abs(signs @ differences) >= observed * (1 - 1e-9)).sum())
    return (extreme + 1) / (resamples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for there being several, in the order given (Holm, 1979).

    The chance of even one false alarm among all of them stays below the level they are held against.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def standard_deviation(values: Sequence[float]) -> float:
    """The sample standard deviation (n - 1) of one number a seed; 0 for a single seed."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
