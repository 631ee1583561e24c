"""The key `results` of a pipeline file: the runs to compare, their sets, and the measures."""

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import MinLen

from notewriter.experiments.files import Text

BEST = "best control"
"""The name in a primary test of the control that scores highest on the set where controls are chosen."""


@dataclass(frozen=True)
class Primary:
    """A test that the file names before its runs are seen.

    Attributes:
        metric: the score.
        compare: two cells; the first may be `BEST`; the difference is the second minus the first.
        sets: the sets, a test on each; default: all but `chosen_on`.
    """

    metric: Text
    compare: tuple[str, str]
    sets: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Compared:
    """A grid of the pipeline's evaluation runs: a row a cell of the file, a column a set, and a run of every seed.

    Attributes:
        title: the heading of the page.
        text: the question and the setting of the experiment, in Markdown.
        sets: name -> what tables call it; `set` in a cell's path is the name.
        cells: what tables call it -> the path of its evaluation runs, with `set`, and `seed` if it has seeds.
        metrics: the scores that are shown and compared; `note_fact_recall` always with `note_words`, which explain it.
        compare: pairs of cells; differences are the second minus the first.
        seeds: the values of `seed`.
        pairs: what tables call a set of pairs -> its folder, for yields, shortcuts and agreement.
        primary: the tests that the experiment was made for; all else is exploratory.
        controls: the cells with notes without a model; a primary test may name the best of them.
        chosen_on: the set on which the best control is chosen, in each score by itself.
        against: the scores in which every cell is set against the best control; default: those of such primary tests.
        curves: label of a curve in a plot of the first score -> its points, each a number and the cell with it.
        notes: cells whose notes are shown: facts over their first words in a plot, and those of a few questions.
    """

    title: Text
    text: Text
    sets: Annotated[dict[str, str], MinLen(1)]
    cells: Annotated[dict[str, str], MinLen(1)]
    metrics: Annotated[list[str], MinLen(1)]
    compare: list[tuple[str, str]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    pairs: dict[str, str] = field(default_factory=dict)
    primary: list[Primary] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)
    chosen_on: str = ""
    against: list[str] = field(default_factory=list)
    curves: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
