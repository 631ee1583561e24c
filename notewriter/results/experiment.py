"""An experiment: the key `results` of its pipeline file as a grid, with its runs."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from notewriter.evaluation.accounting import METRICS as COSTS
from notewriter.evaluation.catalogue import METRICS
from notewriter.evaluation.metrics import FAMILIES
from notewriter.evaluation.notes import FACTS, WORDS
from notewriter.experiments.compared import BEST, Compared
from notewriter.experiments.files import Variables, filled, filled_in, names_in
from notewriter.experiments.run import Pipeline, read_pipeline
from notewriter.ground.errors import UserError
from notewriter.ground.plugins import unknown
from notewriter.results.compare import Difference, difference
from notewriter.results.measures import score
from notewriter.results.runs import Cell, Runs
from notewriter.results.without_a_model import highest

Place = tuple[str, str]
"""A row, which is a cell of the file, and a set."""


@dataclass(frozen=True)
class Experiment(Compared):
    """What is compared, with the cells of the grid."""

    grid: Mapping[Place, Cell] = field(default_factory=dict)

    def with_published(self, runs: Mapping[Place, Runs]) -> "Experiment":
        """The experiment with these runs in place of those in folders."""
        return replace(
            self, grid={place: replace(cell, published=runs.get(place, {})) for place, cell in self.grid.items()}
        )

    @functools.cached_property
    def runs(self) -> dict[Place, Runs]:
        """The finished runs of each cell of the grid."""
        return {place: cell.runs for place, cell in self.grid.items()}

    @functools.cached_property
    def planned(self) -> list[tuple[str, str, int | None]]:
        """Row, set and seed of all runs, whether they exist or not."""
        return [(*place, seed) for place, cell in self.grid.items() for seed in cell.folders]

    @functools.cached_property
    def begun(self) -> list[str]:
        """The rows that have a finished run on any set."""
        return [row for row in self.cells if self.by_seed(row)]

    @functools.cached_property
    def tested(self) -> dict[str, str]:
        """The sets on which no control is chosen, with their titles."""
        return {of: title for of, title in self.sets.items() if of != self.chosen_on}

    def best_control(self, metric: str) -> str:
        """The control with the highest mean of a score on the set where controls are chosen; empty before it ran."""
        return self.highest_control(metric, self.chosen_on) if self.chosen_on else ""

    def highest_control(self, metric: str, of: str) -> str:
        """The control with the highest mean of a score on a set; empty before all of them ran there."""
        scores = {row: score(metric, self.runs[row, of].values()) for row in self.controls}
        means = {row: each.interval.mean for row, each in scores.items() if each}
        return highest(means) if len(means) == len(scores) else ""

    @functools.cached_property
    def gains(self) -> dict[str, dict[Place, Difference]]:
        """Score -> place -> its gain over the best control, except for controls and the set that chooses them.

        Of the scores in `against`, or else of those in which a primary test names the best control, or else of the
        first one. Empty without controls.
        """
        primary = [test.metric for test in self.primary if test.compare[0] == BEST]
        best = {each: self.best_control(each) for each in dict.fromkeys(self.against or primary or self.metrics[:1])}
        return {
            metric: self.gains_over(metric, dict.fromkeys(self.tested, control))
            for metric, control in best.items()
            if control
        }

    def gains_over(self, metric: str, controls: Mapping[str, str]) -> dict[Place, Difference]:
        """Every row but the controls, minus the control of each set; sets without a control are left out."""
        return {
            (row, of): each
            for row in self.cells
            for of, control in controls.items()
            if row not in self.controls and control
            if (each := difference(metric, self.runs[control, of], self.runs[row, of]))
        }

    def by_seed(self, row: str) -> Runs:
        """A finished run of each seed of a row, on any set: those of one seed have one model."""
        return {seed: run for of in self.sets for seed, run in self.runs[row, of].items()}


def read_experiment(
    file: Path, output_dir: str | None, changes: Mapping[str, str], cells: Mapping[str, str] | None = None
) -> tuple[Experiment, Pipeline]:
    """The experiment in a pipeline file, and the pipeline; `output_dir` and `changes` as given to the pipeline.

    `cells` are further ones, in the form of the file's.

    Raises:
        UserError: the file is not a pipeline, has no `results`, or they name what does not exist.
    """
    pipeline = read_pipeline(file, output_dir, changes)
    compared, variables, place = pipeline.results, pipeline.variables, f"{file}: results"
    if compared is None:
        raise UserError(f"{place}: is missing; add this key with the runs to compare (docs/pipelines.md)")
    if both := compared.cells.keys() & dict(cells or {}):
        raise UserError(f"{place}: cells: {min(both)!r} exists already; choose another name in --rows")
    texts = {key: filled_in(getattr(compared, key), variables, f"{place}: {key}") for key in ("title", "text", "pairs")}
    metrics = compared.metrics
    if FACTS in metrics and WORDS not in metrics:
        metrics = [*metrics, WORDS]
    compared = replace(compared, **texts, metrics=metrics, cells=compared.cells | dict(cells or {}))
    _check(compared, variables, place)
    grid = {(row, of): _cell(compared, variables, row, of) for row in compared.cells for of in compared.sets}
    return Experiment(**vars(compared), grid=grid), pipeline


def _cell(compared: Compared, variables: Variables, row: str, of: str) -> Cell:
    path = compared.cells[row]
    seeds = compared.seeds if "seed" in names_in(path, variables) else [None]
    return Cell(row, of, {seed: Path(filled(path, {**variables, "set": of, "seed": seed}, row)) for seed in seeds})


def _check(compared: Compared, variables: Variables, place: str) -> None:
    """Check that all names exist, and that the paths of cells tell their runs apart."""
    if costs := [metric.name for metric in COSTS if metric.name in compared.metrics]:
        raise UserError(f"{place}: metrics: {costs[0]!r} is a cost, which every page shows; remove it")
    # Looking for other packages' metrics reads the files of every installed package.
    families = FAMILIES.installed() if set(compared.metrics) - METRICS.keys() else []
    scores = {*METRICS, *(metric.name for family in families for metric in family.metrics)}
    firsts = [test.compare[0] for test in compared.primary]
    if BEST in firsts and not (compared.controls and compared.chosen_on):
        raise UserError(f"{place}: primary: {BEST!r} needs controls, and chosen_on, one of the sets")
    for key, names, known in (
        ("metrics", compared.metrics, scores),
        ("primary", [*filter(BEST.__ne__, firsts), *(test.compare[1] for test in compared.primary)], compared.cells),
        ("primary", [test.metric for test in compared.primary], compared.metrics),
        ("primary", [of for test in compared.primary for of in test.sets], compared.sets),
        ("against", compared.against, compared.metrics),
        ("compare", [row for pair in compared.compare for row in pair], compared.cells),
        ("curves", [row for curve in compared.curves.values() for _, row in curve], compared.cells),
        ("controls", compared.controls, compared.cells),
        ("notes", compared.notes, compared.cells),
        ("chosen_on", [compared.chosen_on] if compared.chosen_on else [], compared.sets),
    ):
        for name in names:
            if name not in known:
                more = "; those of a file of yours need --plugins FILE:OBJECT" if key == "metrics" else ""
                raise UserError(f"{place}: {key}: {unknown('name', name, known)}{more}")
    for row, path in compared.cells.items():
        here = f"{place}: cells: {row}"
        filled(path, {**variables, "set": "", "seed": 0}, here)
        used = names_in(path, variables)
        if "set" not in used:
            raise UserError(f"{here}: has no {{{{ set }}}}, so that every set has the same run; add it")
        if "seed" in used and not compared.seeds:
            raise UserError(f"{here}: has {{{{ seed }}}}, and there are no seeds; list them")
