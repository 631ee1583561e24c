"""The plots of an experiment's page, as SVG."""

from collections.abc import Mapping
from statistics import fmean

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.notes import Notes
from notewriter.experiments.compared import BEST
from notewriter.ground.records import Question
from notewriter.ground.text import words_in
from notewriter.pages import charts
from notewriter.results.experiment import Experiment, Place
from notewriter.results.measures import facts_curve, measure, score
from notewriter.results.page import Plot

PLOTS = 2
"""How many of the metrics that are shares have a plot of their own, from the first on; its axis ends at 1."""


def plots_of(experiment: Experiment, notes: Notes) -> list[Plot]:
    """The plots: curves, facts over words, and gains over the best control or else scores, as far as they ran."""
    shares = [metric for metric in experiment.metrics if measure(metric).share]
    each = {f"gain-{metric}": gains(experiment, metric) for metric in experiment.gains}
    each = each or {metric: scores(experiment, metric) for metric in shares[:PLOTS]}
    plots = {"curves": curves(experiment), "words": facts_over_words(experiment, notes), **each}
    return [Plot(name, plot) for name, plot in plots.items() if plot]


def scores(experiment: Experiment, metric: str) -> str:
    """A score of every cell, a group for each set; empty if no cell has it."""
    label = measure(metric).label
    found = {place: score(metric, runs.values()) for place, runs in experiment.runs.items()}
    groups = _groups(experiment, {place: each.interval for place, each in found.items() if each})
    what = f"{label} by set and cell, with 95% intervals; the numbers are in the tables"
    return charts.intervals(what, groups, f"{label}: mean with its 95% interval") if any(groups.values()) else ""


def gains(experiment: Experiment, metric: str) -> str:
    """A score of every cell minus that of the best control, a group for each set with a gain; empty before any ran."""
    label, best = measure(metric).label, experiment.best_control(metric)
    found = _groups(experiment, {place: each.found.interval for place, each in experiment.gains[metric].items()})
    groups = {title: dots for title, dots in found.items() if dots}
    what = f"{label}: every cell minus {best}, the best control, with 95% intervals"
    return charts.intervals(what, groups, f"{label}, minus that of {best}", sign="+") if groups else ""


def _groups(experiment: Experiment, means: Mapping[Place, Interval]) -> dict[str, list[charts.Dot]]:
    """A dot of every cell that has a mean, by the title of its set."""
    return {
        title: [
            charts.Dot(cell, mean, series=number)
            for number, cell in enumerate(experiment.cells)
            if (mean := means.get((cell, of)))
        ]
        for of, title in experiment.sets.items()
    }


def curves(experiment: Experiment) -> str:
    """The first score over the numbers that curves name, a panel for each set; empty before any cell ran."""
    metric = experiment.metrics[0]
    numbers = [number for curve in experiment.curves.values() for number, _ in curve]
    best = experiment.best_control(metric)
    panels = []
    for of, title in experiment.sets.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        dots: list[charts.Dot] = []
        for series, (name, curve) in enumerate(experiment.curves.items()):
            found = {number: score(metric, experiment.runs[cell, of].values()) for number, cell in curve}
            means = {number: each.interval for number, each in sorted(found.items()) if each}
            lines[name] = [(number, mean.mean) for number, mean in means.items()]
            dots += [charts.Dot("", mean, series, number, name) for number, mean in means.items()]
        if best and dots and (control := score(metric, experiment.runs[best, of].values())):
            lines[BEST] = [(number, control.interval.mean) for number in (min(numbers), max(numbers))]
        if dots:
            panels.append(charts.Panel(f"{title}: {measure(metric).label}", lines, dots, from_zero=False))
    what = f"{measure(metric).label} over the numbers of {', '.join(experiment.curves)}, with 95% intervals"
    return charts.panels(what, panels) if panels else ""


def facts_over_words(experiment: Experiment, notes: Notes) -> str:
    """The facts within the first words of the notes of some cells, means over seeds, a panel for each set.

    Lines end where the notes of the longest of the cells do on average; empty without facts.
    """
    panels = []
    for of, title in experiment.sets.items():
        written: dict[str, list[tuple[str, Question]]] = {row: [] for row in experiment.notes}
        for note in notes.rows:
            if note["set"] == of and note["cell"] in written and note["facts"]:
                question = Question(note["question_id"], note["question"], (), supporting_facts=tuple(note["facts"]))
                written[note["cell"]].append((note["note"], question))
        longest = max((fmean(len(words_in(note)) for note, _ in each) for each in written.values() if each), default=0)
        lines = {row: facts_curve(each, longest) for row, each in written.items()}
        if any(lines.values()):
            panels.append(charts.Panel(title, lines, axis="first words of the note"))
    what = "Supporting facts within the first words of notes, means over questions and seeds"
    return charts.panels(what, panels) if panels else ""
