"""What an experiment compares: the key `results` of its pipeline file, and the run folders that it names."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.evaluation.accounting import METRICS as COSTS
from notewriter.evaluation.catalogue import METRICS
from notewriter.evaluation.notes import EQUAL_WORDS, FACTS, WHOLE_FACTS
from notewriter.experiments.files import Text, Variables, filled, filled_in, names_in
from notewriter.experiments.run import Pipeline, read_pipeline
from notewriter.ground import typed
from notewriter.ground.errors import UserError
from notewriter.ground.yaml_files import check_mapping
from notewriter.results.compare import Difference, Runs, difference
from notewriter.results.measures import score
from notewriter.results.runs import Run

WORDS_OF_FACTS = f"{FACTS}_{EQUAL_WORDS}"

BEST = "best control"
"""What a primary test calls the control that scores highest where controls are chosen."""


@dataclass(frozen=True)
class Primary:
    """A test that the file names before its runs are seen.

    Attributes:
        metric: the score.
        compare: two cells, of which the first may be `BEST`; the difference is the second minus the first.
        sets: the sets of which each is a test; default: all but `chosen_on`.
    """

    metric: Text
    compare: tuple[str, str]
    sets: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Results:
    """The key `results` of a pipeline file.

    Attributes:
        title: the heading of the page.
        text: what the experiment asks and how, in Markdown.
        sets: name -> what tables call it; `set` in a cell's path is the name.
        cells: what tables call it -> the path of its evaluation runs, with `set`, and `seed` if it has seeds.
        compare: pairs of cells; differences are the second minus the first.
        metrics: the scores that are shown and compared; `note_fact_recall` always with `note_words`, which explain it.
        seeds: the values of `seed`.
        pairs: what tables call a set of pairs -> its folder, for yields, shortcuts and agreement.
        primary: the tests that the experiment was made for; all else is exploratory.
        controls: the cells whose notes no model wrote, of which a primary test may name the best.
        chosen_on: the set on which the best control is chosen, in each score by itself.
        curves: what a plot of the first score calls a curve -> its points, each a number and the cell with it.
        notes: cells whose notes are shown: facts over their first words in a plot, and those of a few questions.
    """

    title: Text
    text: Text
    sets: Annotated[dict[str, str], MinLen(1)]
    cells: Annotated[dict[str, str], MinLen(1)]
    compare: list[tuple[str, str]]
    metrics: Annotated[list[str], MinLen(1)]
    seeds: list[int] = field(default_factory=list)
    pairs: dict[str, str] = field(default_factory=dict)
    primary: list[Primary] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)
    chosen_on: str = ""
    curves: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment(Results):
    """Results with the variables of their file, and the finished runs that they name.

    Attributes:
        variables: those of the file.
        published: (cell, set) -> runs that are read from published notes, and not from their folders.
    """

    variables: Variables = field(default_factory=dict)
    published: Mapping[tuple[str, str], Runs] = field(default_factory=dict)

    def planned(self, cell: str, of: str) -> dict[int | None, Path]:
        """Seed -> the run of a cell on a set, whether it exists or not; the seed is None for a cell without seeds."""
        path = self.cells[cell]
        seeds = self.seeds if "seed" in names_in(path, self.variables) else [None]
        return {seed: Path(filled(path, {**self.variables, "set": of, "seed": seed}, cell)) for seed in seeds}

    @functools.cached_property
    def runs(self) -> dict[tuple[str, str], Runs]:
        """(Cell, set) -> its finished runs."""

        def of_place(cell: str, of: str) -> Runs:
            planned, published = self.planned(cell, of), self.published.get((cell, of), {})
            return {
                seed: published.get(seed) or Run(run)
                for seed, run in planned.items()
                if seed in published or (run / "metrics.json").is_file()
            }

        return {(cell, of): of_place(cell, of) for cell in self.cells for of in self.sets}

    @functools.cached_property
    def begun(self) -> list[str]:
        """The cells that have a finished run on any set."""
        return [cell for cell in self.cells if self.by_seed(cell)]

    def best_control(self, metric: str) -> str:
        """The control with the highest mean of a score on the set where controls are chosen; empty before it ran."""
        return self.highest_control(metric, self.chosen_on) if self.chosen_on else ""

    def highest_control(self, metric: str, of: str) -> str:
        """The control with the highest mean of a score on a set; empty before all of them ran there."""
        scores = {cell: score(metric, list(self.runs[cell, of].values())) for cell in self.controls}
        means = {cell: each.interval.mean for cell, each in scores.items() if each}
        return max(means, key=means.__getitem__) if means and len(means) == len(self.controls) else ""

    @functools.cached_property
    def gains(self) -> dict[str, dict[tuple[str, str], Difference]]:
        """Score -> (cell, set) -> the cell minus the best control, for all cells but controls and sets but `chosen_on`.

        Of the scores in which a primary test names the best control, or else of the first one; with the share of facts'
        words always that of whole facts, if the page has it. Empty without controls.
        """
        primary = [test.metric for test in self.primary if test.compare[0] == BEST] or self.metrics[:1]
        if WORDS_OF_FACTS in primary and WHOLE_FACTS in self.metrics:
            primary.insert(primary.index(WORDS_OF_FACTS) + 1, WHOLE_FACTS)
        best = {metric: self.best_control(metric) for metric in dict.fromkeys(primary)}
        return {
            metric: {place: each for place in self._tried if (each := self._gain(metric, control, *place))}
            for metric, control in best.items()
            if control
        }

    @functools.cached_property
    def gains_over_highest(self) -> dict[str, dict[tuple[str, str], Difference]]:
        """As `gains`, minus the control that is highest on each set itself, which favours that control."""
        highest = {(metric, of): self.highest_control(metric, of) for metric in self.gains for of in self.sets}
        return {
            metric: {
                (cell, of): each
                for cell, of in self._tried
                if (control := highest[metric, of]) and (each := self._gain(metric, control, cell, of))
            }
            for metric in self.gains
        }

    @property
    def _tried(self) -> list[tuple[str, str]]:
        """Every cell but the controls, on every set but the one where controls are chosen."""
        cells = [cell for cell in self.cells if cell not in self.controls]
        return [(cell, of) for cell in cells for of in self.sets if of != self.chosen_on]

    def _gain(self, metric: str, control: str, cell: str, of: str) -> Difference | None:
        return difference(metric, self.runs[control, of], self.runs[cell, of])

    def folders(self, cell: str) -> list[Path]:
        """The finished runs of a cell on all sets."""
        return [run.folder for of in self.sets for run in self.runs[cell, of].values()]

    def by_seed(self, cell: str) -> Runs:
        """A finished run of each seed of a cell, on any set: those of one seed have one model."""
        return {seed: run for of in self.sets for seed, run in self.runs[cell, of].items()}


def read_experiment(
    file: Path, output_dir: str | None, changes: Mapping[str, str], cells: Mapping[str, str] | None = None
) -> tuple[Experiment, Pipeline]:
    """The experiment in a pipeline file, and the pipeline; `output_dir` and `changes` as given to the pipeline.

    `cells` are further ones, in the form of the file's.

    Raises:
        UserError: the file is not a pipeline, has no `results`, or they name what does not exist.
    """
    pipeline = read_pipeline(file, output_dir, changes)
    variables, place = pipeline.variables, f"{file}: results"
    if pipeline.results is None:
        raise UserError(f"{place}: is missing; it says which runs are compared (docs/pipelines.md)")
    check_mapping(pipeline.results, Results, place)
    for number, test in enumerate(pipeline.results.get("primary", [])):
        check_mapping(test, Primary, f"{place}: primary[{number}]")
    content = pipeline.results | {
        key: filled_in(pipeline.results[key], variables, f"{place}: {key}")
        for key in ("title", "text", "pairs")
        if key in pipeline.results
    }
    results = typed.read(content, Results, place)
    if both := results.cells.keys() & dict(cells or {}):
        raise UserError(f"{place}: cells: {min(both)!r} is there; call yours otherwise in --rows")
    results = replace(results, cells=results.cells | dict(cells or {}))
    metrics = results.metrics
    if "note_fact_recall" in metrics and "note_words" not in metrics:
        metrics = [*metrics, "note_words"]
    experiment = Experiment(**vars(results) | {"metrics": metrics, "variables": variables})
    _check_names(place, "compare", [cell for pair in experiment.compare for cell in pair], list(experiment.cells))
    if costs := [metric.name for metric in COSTS if metric.name in metrics]:
        raise UserError(f"{place}: metrics: {costs[0]!r} is a cost, which every page shows; remove it")
    _check_names(place, "metrics", metrics, [*METRICS])
    for test in experiment.primary:
        first, second = test.compare
        if first == BEST and not (experiment.controls and experiment.chosen_on):
            raise UserError(f"{place}: primary: {BEST!r} needs controls, and chosen_on, one of the sets")
        _check_names(place, "primary", [second, *([] if first == BEST else [first])], list(experiment.cells))
        _check_names(place, "primary", [test.metric], metrics)
        _check_names(place, "primary", test.sets, list(experiment.sets))
    points = [cell for curve in experiment.curves.values() for _, cell in curve]
    _check_names(place, "curves", points, list(experiment.cells))
    _check_names(place, "controls", experiment.controls, list(experiment.cells))
    _check_names(place, "chosen_on", list(filter(None, [experiment.chosen_on])), list(experiment.sets))
    _check_names(place, "notes", experiment.notes, list(experiment.cells))
    for cell, path in experiment.cells.items():
        here = f"{place}: cells: {cell}"
        filled(path, {**variables, "set": "", "seed": 0}, here)
        names = names_in(path, variables)
        if "set" not in names:
            raise UserError(f"{here}: has no {{{{ set }}}} in it, so that every set has the same run")
        if "seed" in names and not experiment.seeds:
            raise UserError(f"{here}: has {{{{ seed }}}}, and there are no seeds; list them")
    return experiment, pipeline


def _check_names(place: str, key: str, names: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"{place}: {key}: {unknown[0]!r} is unknown; known are: {', '.join(known)}")
