"""The grid of a table: rows and columns of cells, each with the runs of its seeds."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from notewriter.results.runs import Run, Runs


@dataclass(frozen=True)
class Cell:
    """What a row has in a column: one evaluation run, or one of each seed or sample.

    Attributes:
        row: what tables call the row.
        column: the set of questions.
        folders: seed, or number of a sample -> the run's folder, whether it exists or not; None stands for no seed.
        published: the runs that are read from published notes, and not from their folders.
    """

    row: str
    column: str
    folders: Mapping[int | None, Path]
    published: Runs = field(default_factory=dict, kw_only=True)

    @functools.cached_property
    def runs(self) -> Runs:
        """The finished runs."""
        return {
            seed: self.published.get(seed) or Run(folder)
            for seed, folder in self.folders.items()
            if seed in self.published or (folder / "metrics.json").is_file()
        }
