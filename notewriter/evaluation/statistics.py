"""Uncertainty of means over questions and seeds: bootstrap intervals, and tests of paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from notewriter.artifacts.metrics import Interval
from notewriter.ground.lazy import Lazy

if TYPE_CHECKING:
    import numpy as np
else:
    np = Lazy("numpy")

PERMUTATIONS = 10_000

FLOOR = 1 / (PERMUTATIONS + 1)
"""The smallest p-value of `permutation_test`, a bound: no permutation was as extreme."""

BLOCK = 2**21
"""Indices drawn at once (16 MB)."""

DIGITS = 12
"""Decimals of means; beyond them lie the errors of sums, which are no differences."""

TAIL = (1 - 0.95) / 2
"""The share of resampled values beyond each bound of a 95% interval; its last digits are part of written intervals."""


def bootstrap_interval(values: Sequence[float], *, resamples: int = 10_000) -> Interval:
    """The mean of one value per question, with its 95% percentile bootstrap interval.

    Draws `resamples` samples of the same size with replacement and takes the quantiles of their means (Efron &
    Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3). The interval depends on the values
    alone, not on their order, in which a run happened to finish its questions. With fewer than about twenty values it
    is too narrow, and with one value it is a point.

    Raises:
        ValueError: no values, or values that are not finite numbers.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError("values must be a one-dimensional sequence of at least one number")
    if not np.isfinite(sample).all():
        raise ValueError("values must be finite numbers")
    sample = np.sort(sample)
    generator = np.random.default_rng(0)
    rows = max(1, BLOCK // sample.size)
    # Not scipy.stats.bootstrap, which takes a second to import: every evaluation computes intervals.
    means = np.concatenate(
        [
            sample[generator.integers(sample.size, size=(min(rows, resamples - start), sample.size))].mean(axis=1)
            for start in range(0, resamples, rows)
        ]
    )
    low, high = np.quantile(means, [TAIL, 1 - TAIL])
    return Interval(float(sample.mean()), float(low), float(high))


def paired_interval(before: Sequence[float], after: Sequence[float]) -> Interval:
    """The mean of `after - before` over the same questions in the same order, with its bootstrap interval.

    Pairing removes what makes some questions harder than others on both sides, so the interval is usually narrower
    than the intervals of the two sides suggest.

    Raises:
        ValueError: lengths that differ, or see `bootstrap_interval`.
    """
    return bootstrap_interval(_differences(before, after).tolist())


class TwoWay(NamedTuple):
    """A mean difference over seeds and questions, with its interval and the two-sided p-value of no difference.

    Attributes:
        interval: resamples seeds and questions together.
        p_value: of the same resamples; twice `FLOOR` is the smallest.
        seeds: the interval with the seed as the unit, a t interval over the seeds' means; None for a single seed.
        seeds_p_value: of the t test over the seeds' means; None for a single seed.
    """

    interval: Interval
    p_value: float
    seeds: Interval | None
    seeds_p_value: float | None


def two_way(differences: Sequence[Sequence[float]], *, resamples: int = PERMUTATIONS) -> TwoWay:
    """The paired difference of a way of training, over its seeds and over questions.

    A resample draws as many seeds and as many questions with replacement, and takes the mean of the differences where
    they cross (Owen, The pigeonhole bootstrap, 2007, section 3). So it allows for the effect that one training has on
    all questions. The p-value is twice the share of resamples on the other side of zero, or on it (Efron & Tibshirani,
    1993, section 15.4). With five seeds the draws of seeds are coarse and their spread is too small by about a tenth:
    read the interval over the seeds beside it, which is wide but right if the seeds' means are normal.

    Args:
        differences: of the shape (seeds, questions), the same questions in the same order for each seed.
        resamples: how many.

    Raises:
        ValueError: no seeds or questions, rows of different lengths, or values that are not finite numbers.
    """
    # Takes a second to import, which commands that test nothing need not wait for.
    from scipy.stats import t

    if len({len(row) for row in differences}) != 1 or not differences[0]:
        raise ValueError("differences must have the same questions, at least one, for every seed")
    table = np.asarray(differences, dtype=np.float64)
    if not np.isfinite(table).all():
        raise ValueError("differences must be finite numbers")
    # Independent of the order in which a run happened to finish its questions.
    table = table[:, np.lexsort(table)]
    generator = np.random.default_rng(0)
    rows, columns = table.shape
    block = max(1, BLOCK // columns)
    means = np.concatenate(
        [_crossed(table, generator, min(block, resamples - start)) for start in range(0, resamples, block)]
    )
    other_side = min((means <= 0).sum(), (means >= 0).sum())
    low, high = np.quantile(means, [0.025, 0.975])
    interval = Interval(round(float(table.mean()), DIGITS), float(low), float(high))
    p_value = min(1.0, 2 * float(other_side + 1) / (resamples + 1))
    if rows == 1:
        return TwoWay(interval, p_value, None, None)
    of_seeds = table.mean(axis=1).round(DIGITS)
    error = standard_deviation(of_seeds.tolist()) / math.sqrt(rows)
    reach = float(t.ppf(0.975, rows - 1)) * error
    # Seeds that agree to the last digit leave no doubt.
    seeds_p_value = float(2 * t.sf(abs(interval.mean) / error, rows - 1)) if error else float(not interval.mean)
    return TwoWay(
        interval, p_value, Interval(interval.mean, interval.mean - reach, interval.mean + reach), seeds_p_value
    )


def _crossed(
    table: np.ndarray[tuple[int, ...], np.dtype[np.float64]], generator: np.random.Generator, resamples: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The means of so many resamples of a table's rows and columns, each drawn as often as there are."""
    rows, columns = table.shape
    # Each seed as often as it is drawn; counts of questions would take longer than drawing their places.
    seeds = generator.multinomial(rows, np.full(rows, 1 / rows), size=resamples) @ table / rows
    questions = generator.integers(columns, size=(resamples, columns))
    means: np.ndarray[tuple[int], np.dtype[np.float64]] = np.take_along_axis(seeds, questions, axis=1).mean(axis=1)
    return means


def mcnemar(before: Sequence[float], after: Sequence[float]) -> float:
    """Two-sided exact p-value of McNemar's test on right (1) and wrong (0) answers to the same questions.

    Only questions whose answer changed matter: under the null hypothesis each changed in either direction with equal
    probability (McNemar, 1947; the exact binomial form, which is valid for few changes too).

    Raises:
        ValueError: lengths that differ, or values other than 0 and 1.
    """
    # Takes a second to import, which commands that test nothing need not wait for.
    from scipy.stats import binomtest

    if not {*before, *after} <= {0, 1}:
        raise ValueError("McNemar's test takes 0 and 1 only; use permutation_test for other scores")
    gained = sum(left < right for left, right in zip(before, after, strict=True))
    lost = sum(left > right for left, right in zip(before, after, strict=True))
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def permutation_test(before: Sequence[float], after: Sequence[float]) -> float:
    """Two-sided p-value of the mean difference of paired scores, by flipping the signs of differences at random.

    Under the null hypothesis each question's two scores are exchangeable (Fisher's randomisation test). The smallest
    possible value is `FLOOR`.

    Raises:
        ValueError: lengths that differ, or no values.
    """
    differences = np.sort(_differences(before, after))
    observed = abs(differences.sum())
    generator = np.random.default_rng(0)
    rows = max(1, BLOCK // differences.size)
    extreme = 0
    for start in range(0, PERMUTATIONS, rows):
        signs = generator.integers(2, size=(min(rows, PERMUTATIONS - start), differences.size), dtype=np.int8) * 2 - 1
        # A sum that equals the observed one up to rounding is as extreme.
        extreme += int((np.abs(signs @ differences) >= observed * (1 - 1e-9)).sum())
    return float((extreme + 1) / (PERMUTATIONS + 1))


def paired_p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """The p-value of a paired difference: of `mcnemar` where every score is 0 or 1, else of `permutation_test`."""
    test = mcnemar if {*before, *after} <= {0, 1} else permutation_test
    return test(before, after)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for multiple testing, in the order given (Holm, 1979).

    Keeps the probability of even one false positive among all of them below the level they are compared with.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def over_seeds(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Question -> the mean of its values in several runs, for the questions that all runs have."""
    return {
        question: sum(run[question] for run in runs) / len(runs)
        for question in (runs[0] if runs else ())
        if all(question in run for run in runs)
    }


def standard_deviation(values: Sequence[float]) -> float:
    """The sample standard deviation (n - 1) of one value per seed; 0 for a single seed."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _differences(before: Sequence[float], after: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if len(before) != len(after) or len(before) == 0:
        raise ValueError(f"before has {len(before)} values and after {len(after)}; give one of each for every question")
    return np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
