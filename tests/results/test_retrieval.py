"""The tables of what chains of retrievers found."""

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.retrieval import ChainResult, RetrievalResults
from notewriter.results.retrieval import retrieval_tables


def test_a_p_value_that_no_permutation_reaches_is_shown_as_a_bound():
    # Twenty questions that all gain, by different amounts: a permutation test, not McNemar's.
    names = [f"nDCG@{depth}" for depth in range(1, 13)]
    before = dict.fromkeys(names, [0.0] * 20)
    after = {name: [0.3 + (number + place) / 100 for number in range(20)] for place, name in enumerate(names)}
    chains = {
        name: ChainResult(dict.fromkeys(names, Interval(0.5, 0.4, 0.6)), scores, {"p50": 1.0}, [])
        for name, scores in (("a", before), ("b", after))
    }
    tables = retrieval_tables(RetrievalResults("hotpotqa", 20, chains))
    (_, _, rows) = next(table for table in tables if table[0].startswith("Difference"))
    # 1 / 10,001 twelve times, rounded up.
    assert {row[-2] for row in rows} == {"<0.002"}
