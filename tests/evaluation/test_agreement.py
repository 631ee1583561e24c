import pytest

from notewriter.evaluation.agreement import agreement


def rated(table):
    """Ratings with these counts, `table[first][second]`, each of a question of its own."""
    ratings = [pair for (pair, count) in table.items() for _ in range(count)]
    return ratings, range(len(ratings))


def test_kappa_is_what_a_table_by_hand_gives():
    # p_o = 35 / 50; both say yes by chance 0.5 * 0.6, both no 0.5 * 0.4.
    found = agreement(*rated({("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15}))
    assert found.items == 50
    assert found.share.mean == pytest.approx(0.7)
    assert found.kappa.mean == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert found.kappa.low < 0.4 < found.kappa.high and found.share.low < 0.7 < found.share.high


def test_frequent_categories_agree_by_chance():
    """The same share, but nearly all in one category."""
    found = agreement(*rated({(0, 0): 90, (0, 1): 5, (1, 0): 5}))
    assert found.share.mean == pytest.approx(0.9)
    assert found.kappa.mean == pytest.approx((0.9 - (0.95**2 + 0.05**2)) / (1 - (0.95**2 + 0.05**2)))
    assert found.kappa.mean < 0


def test_three_categories():
    table = {(0, 0): 10, (1, 1): 10, (2, 2): 10, (0, 2): 3, (2, 1): 3}
    first, second = [13 / 36, 10 / 36, 13 / 36], [10 / 36, 13 / 36, 13 / 36]
    chance = sum(one * other for one, other in zip(first, second, strict=True))
    assert agreement(*rated(table)).kappa.mean == pytest.approx((30 / 36 - chance) / (1 - chance))


def test_perfect_agreement_leaves_no_doubt():
    found = agreement(*rated({(0, 0): 5, (1, 1): 5}))
    assert (found.share.low, found.share.high) == (1, 1)
    assert (found.kappa.mean, found.kappa.low, found.kappa.high) == (1, 1, 1)


def test_kappa_of_one_category_is_undefined():
    assert agreement([(0, 0), (0, 0)], ["q1", "q2"]).kappa is None


def test_items_of_one_question_count_as_one():
    """Ten items of each of ten questions, all alike within a question, say no more than ten items."""
    ratings = [(number % 2, number % 3 % 2) for number in range(10)]
    alone = agreement(ratings, range(10))
    repeated = agreement(ratings * 10, [*range(10)] * 10)
    assert repeated.share == pytest.approx(alone.share) and repeated.kappa == pytest.approx(alone.kappa)
    assert agreement(ratings * 10, range(100)).share.low > alone.share.low


def test_the_order_of_the_items_makes_no_difference():
    ratings = [(0, 0), (1, 0), (1, 1), (0, 0), (0, 1)]
    assert agreement(ratings, "abcde") == agreement(ratings[::-1], "edcba")


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="0 ratings"):
        agreement([], [])
    with pytest.raises(ValueError, match="1 ratings and 2 clusters"):
        agreement([(0, 0)], "ab")
