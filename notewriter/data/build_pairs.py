"""`notewriter pairs`: make preference pairs by running methods in the sampling rollout (DNAlign)."""

from notewriter.data.building import read_settings, run_pairs
from notewriter.data.dataset.contents import PAIRS


def main(argv: list[str]) -> None:
    """Make pairs; running the command again resumes it."""
    run_pairs(read_settings(PAIRS, argv, prog="notewriter pairs", description=__doc__))
