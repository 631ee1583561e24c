"""How often the intervals of a page contain the true difference, by the number of seeds and how far these differ.

    python benchmarks/coverage.py

A simulated difference is the sum of a seed's effect, a question's, and one of both, all normal, with a true mean of
zero; the last two have half of the variance each. `both` is the share of experiments in which one of the first two
intervals contains zero, so that a claim that needs both is not made.
"""

import argparse
import sys

import numpy as np

from notewriter.evaluation.statistics import bootstrap_interval, two_way


def main() -> None:
    """Write a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--deviations", type=float, nargs="+", default=[0.0, 0.05, 0.1, 0.2])
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=500)
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    columns = ["seeds", "deviation of seeds", "seeds and questions", "seeds as unit", "both", "questions alone"]
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---:|' * len(columns)}\n")
    for seeds in options.seeds:
        for deviation in options.deviations:
            covered = np.zeros(4)
            for _ in range(options.experiments):
                table = deviation * generator.standard_normal((seeds, 1)) + 0.5**0.5 * (
                    generator.standard_normal((1, options.questions))
                    + generator.standard_normal((seeds, options.questions))
                )
                found = two_way(table.tolist(), resamples=options.resamples)
                alone = bootstrap_interval(table.mean(axis=0).tolist(), resamples=options.resamples)
                together, of_seeds, of_questions = (
                    each is not None and each.low <= 0 <= each.high for each in (found.interval, found.seeds, alone)
                )
                covered += [together, of_seeds, together or of_seeds, of_questions]
            shares = " | ".join(f"{share:.2f}" for share in covered / options.experiments)
            sys.stdout.write(f"| {seeds} | {deviation:g} | {shares} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
