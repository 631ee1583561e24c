"""Measures of a ranking against values computed by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewriter.evaluation.searching import measures, ndcg, recall, reciprocal_rank


def test_recall_is_the_share_of_gold_passages_among_the_first():
    assert recall("abcd", "bd", 1) == 0
    assert recall("abcd", "bd", 2) == 0.5
    assert recall("abcd", "bd", 4) == 1
    assert recall("bbbb", "bd", 4) == 0.5


def test_the_reciprocal_rank_is_that_of_the_first_gold_passage():
    assert reciprocal_rank("abcd", "dc") == 1 / 3
    assert reciprocal_rank("abcd", "x") == 0


def test_ndcg_discounts_by_rank():
    # Gold at ranks 2 and 4 of an ideal 1 and 2.
    expected = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))
    assert ndcg("abcd", "bd", 4) == pytest.approx(expected)
    assert ndcg("bdac", "bd", 4) == 1
    # Three gold passages do not fit in two places: the best possible ranking still counts as 1.
    assert ndcg("abcd", "abc", 2) == 1
    # A passage that is named twice counts once.
    assert ndcg("bb", "bd", 2) == pytest.approx(1 / (1 + 1 / math.log2(3)))


IDS = st.lists(st.integers(0, 9).map(str), max_size=12)


@given(IDS, st.sets(st.integers(0, 9).map(str), min_size=1))
def test_every_measure_lies_between_zero_and_one_and_grows_with_depth(ranking, gold):
    found = measures(ranking, gold, [1, 5, 10])
    assert list(found) == ["recall@1", "recall@5", "recall@10", "MRR@10", "nDCG@1", "nDCG@5", "nDCG@10"]
    assert all(0 <= value <= 1 + 1e-12 for value in found.values())
    assert found["recall@1"] <= found["recall@5"] <= found["recall@10"]
    best = measures(sorted(gold), gold, [1, 5, 10])
    assert best["recall@10"] == best["MRR@10"] == 1
    assert best["nDCG@10"] == pytest.approx(1)
