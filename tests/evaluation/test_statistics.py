import numpy as np
import pytest

from notewriter.artifacts.metrics import Interval
from notewriter.evaluation import statistics
from notewriter.evaluation.statistics import (
    FLOOR,
    bootstrap_interval,
    holm,
    mcnemar,
    paired_interval,
    permutation_test,
    standard_deviation,
    two_way,
)


def test_the_interval_agrees_with_the_normal_approximation_on_a_large_sample():
    values = np.random.default_rng(1).normal(5.0, 2.0, size=400)
    half = 1.96 * values.std() / np.sqrt(values.size)
    interval = bootstrap_interval(values)
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.03)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.03)


def test_ten_coins_of_which_five_are_heads_give_the_binomial_quantiles():
    # The resampled mean is Binomial(10, 1/2) / 10, whose 2.5% and 97.5% quantiles are 2 and 8.
    assert bootstrap_interval([0, 1] * 5) == Interval(0.5, 0.2, 0.8)


def test_values_that_are_all_equal_leave_no_doubt():
    assert bootstrap_interval([0.25] * 7) == Interval(0.25, 0.25, 0.25)


def test_values_give_one_interval_whatever_the_block_of_draws(monkeypatch):
    values = np.random.default_rng(3).random(30)
    whole = bootstrap_interval(values, resamples=1000)
    monkeypatch.setattr(statistics, "BLOCK", 64)
    assert bootstrap_interval(values, resamples=1000) == whole


def test_the_order_of_the_questions_does_not_matter():
    generator = np.random.default_rng(4)
    before, after = generator.random(40), generator.random(40)
    order = generator.permutation(40)
    assert bootstrap_interval(after) == bootstrap_interval(after[order])
    assert paired_interval(before, after) == paired_interval(before[order], after[order])
    assert permutation_test(before, after) == permutation_test(before[order], after[order])


def test_pairing_sees_a_small_gain_that_the_two_intervals_hide():
    before = np.random.default_rng(4).random(100)
    after = before + 0.05
    alone, paired = bootstrap_interval(before), paired_interval(before, after)
    assert alone.high > after.mean()
    assert paired.mean == pytest.approx(0.05)
    assert paired.excludes_zero


def test_a_difference_has_the_sign_of_after_minus_before():
    assert paired_interval([1, 1], [0, 0]) == Interval(-1.0, -1.0, -1.0)


@pytest.mark.parametrize(
    ("interval", "excluded"),
    [
        (Interval(1, 0.1, 2), True),
        (Interval(-1, -2, -0.1), True),
        (Interval(0, -1, 1), False),
        (Interval(1, 0, 2), False),
    ],
)
def test_an_interval_that_touches_zero_does_not_exclude_it(interval, excluded):
    assert interval.excludes_zero is excluded


@pytest.mark.parametrize("values", [[], [[1.0]], [float("nan")], [float("inf")]])
def test_values_without_a_mean_are_refused(values):
    with pytest.raises(ValueError, match="values must"):
        bootstrap_interval(values)


def test_pairs_need_both_sides():
    with pytest.raises(ValueError, match="before has 2 values and after 1"):
        paired_interval([1, 2], [1])


def test_mcnemar_looks_at_the_questions_that_changed_sides_alone():
    # Nine gained, one lost: 2 x (C(10, 0) + C(10, 1)) / 2^10.
    before, after = [0] * 9 + [1] + [1] * 50, [1] * 9 + [0] + [1] * 50
    assert mcnemar(before, after) == pytest.approx(22 / 1024)
    assert mcnemar(after, before) == mcnemar(before, after)
    assert mcnemar([0, 1], [0, 1]) == 1.0
    with pytest.raises(ValueError, match="0 and 1 only"):
        mcnemar([0.5], [1])


def test_the_permutation_test_agrees_with_the_exact_count_of_sign_flips():
    before, after = [0.0] * 6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    # Of 64 ways to flip the signs two are as extreme: none and all.
    assert permutation_test(before, after) == pytest.approx(2 / 64, abs=0.004)
    assert permutation_test(before, before) == 1.0
    with pytest.raises(ValueError, match="before has 1 values and after 2"):
        permutation_test([0.0], [1.0, 1.0])


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_never_falls():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_deviation_over_seeds_is_the_samples():
    assert standard_deviation([1.0, 2.0, 3.0]) == 1.0
    assert standard_deviation([5.0]) == 0.0


def test_seeds_and_questions_together_agree_with_the_variance_of_a_crossed_design():
    """Owen's: about the sum of what seeds, questions and their meeting contribute to the variance of the mean."""
    generator = np.random.default_rng(1)
    of_seeds, of_questions = generator.normal(0, 0.3, (20, 1)), generator.normal(0, 1.0, (1, 200))
    table = 0.1 + of_seeds + of_questions + generator.normal(0, 1.0, (20, 200))
    found = two_way(table.tolist())
    seeds, questions = table.mean(axis=1), table.mean(axis=0)
    half = 1.96 * np.sqrt(seeds.var() / 20 + questions.var() / 200 + table.var() / 4000)
    assert found.interval.mean == pytest.approx(table.mean())
    assert found.interval.high - found.interval.low == pytest.approx(2 * half, rel=0.1)


def test_a_gain_of_one_seed_in_many_questions_is_no_gain_of_the_training():
    generator = np.random.default_rng(2)
    table = [[gain + noise for noise in generator.normal(0, 0.1, 400)] for gain in (0.5, -0.1, 0.0, 0.1, 0.0)]
    assert paired_interval([0.0] * 400, np.mean(table, axis=0)).excludes_zero
    found = two_way(table)
    assert not found.interval.excludes_zero and found.p_value > 0.1
    assert found.seeds and not found.seeds.excludes_zero and found.seeds_p_value > 0.1


def test_the_seed_as_unit_is_a_t_test_of_the_means_of_the_seeds():
    found = two_way([[0.1, 0.3], [0.2, 0.4], [0.3, 0.9]])
    # Means 0.2, 0.3, 0.6: t = 0.3667 / (0.2082 / sqrt(3)) with two degrees of freedom, whose quantile is 4.303.
    assert found.seeds == Interval(*(pytest.approx(each, abs=1e-3) for each in (0.3667, -0.1504, 0.8838)))
    assert found.seeds_p_value == pytest.approx(0.0927, abs=1e-3)


def test_a_single_seed_is_the_bootstrap_over_questions():
    values = np.random.default_rng(3).normal(0.1, 1.0, 200)
    found, single = two_way([values.tolist()]), bootstrap_interval(values)
    assert found.interval.low == pytest.approx(single.low, abs=0.02)
    assert found.interval.high == pytest.approx(single.high, abs=0.02)
    assert found.seeds is found.seeds_p_value is None


def test_the_order_of_questions_does_not_matter_to_seeds_and_questions_together():
    table = np.random.default_rng(5).random((3, 30))
    assert two_way(table.tolist()) == two_way(table[:, ::-1].tolist())


def test_differences_of_seeds_that_add_up_to_nothing_are_none():
    """0.1 + 0.2 - 0.3 is not 0 in floating-point numbers."""
    found = two_way([[0.1, 0.2, -0.3], [0.1, 0.2, -0.3]])
    assert (found.interval.mean, found.seeds_p_value) == (0, 1)
    assert found.seeds == Interval(0, 0, 0)


def test_a_difference_in_every_seed_and_question_is_at_the_floor():
    found = two_way([[0.5, 0.6], [0.4, 0.7]])
    assert found.p_value == pytest.approx(2 * FLOOR) and found.interval.low > 0


@pytest.mark.parametrize("table", [[], [[]], [[1.0], [1.0, 2.0]], [[float("nan")]]])
def test_seeds_without_the_same_questions_are_refused(table):
    with pytest.raises(ValueError, match="differences must"):
        two_way(table)
