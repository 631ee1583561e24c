"""A measure of a cell's runs."""

from notewriter.results.measures import score
from notewriter.results.runs import Run


def test_means_and_deviation_of_seeds_are_over_the_questions_that_all_of_them_have(write_run, tmp_path):
    seeds = [
        Run(write_run(tmp_path / name, scores)) for name, scores in (("1", {"a": 1.0, "b": 0.0}), ("2", {"a": 1.0}))
    ]
    found = score("f1", seeds)
    assert (found.interval.mean, found.runs, found.deviation) == (1.0, [1.0, 1.0], 0.0)
