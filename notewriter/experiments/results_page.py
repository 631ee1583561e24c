"""The page of an experiment: tables, plots, costs, overlaps and commands, all from its run folders."""

import itertools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from notewriter.artifacts.metrics import Interval, read_metrics
from notewriter.artifacts.predictions import Prediction
from notewriter.artifacts.run_record import read_run_record
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.compare import Comparison, compare_uncorrected, corrected, p_value_text
from notewriter.evaluation.statistics import PERMUTATIONS, bootstrap_interval, over_seeds, standard_deviation
from notewriter.experiments.experiment import Experiment
from notewriter.experiments.note_controls import without_a_model
from notewriter.experiments.origins import (
    NOT_RUN,
    Origins,
    code_of,
    evaluation_costs,
    listed,
    origins_of,
    overlaps,
    training_costs,
)
from notewriter.experiments.pair_sets import pair_tables
from notewriter.experiments.run import Pipeline
from notewriter.experiments.values import Finished
from notewriter.ground.text import normalise
from notewriter.pages import charts
from notewriter.pages.tables import Table, markdown

NO_SCORE = "–"
"""Of a run that has no such score, as without notes."""


class Score(NamedTuple):
    """A cell's score on a set: the mean over seeds and questions with its interval, and the mean of each seed."""

    interval: Interval
    seeds: dict[int | None, float]
    questions: int


Runs = Mapping[int | None, Finished]
"""Seed -> the run of a cell on a set."""

Scores = dict[tuple[str, str, str], Score]
"""(Cell, set, metric) -> its score; without cells that were not run."""


class Evaluations:
    """The finished runs of an experiment: (cell, set) -> seed -> run."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.runs = {
            (cell, name): {seed: Finished(run) for seed, run in experiment.runs(cell, name).items()}
            for cell in experiment.cells
            for name in experiment.sets
        }

    def folders(self, cell: str) -> list[Path]:
        """The finished runs of a cell on all sets."""
        return [run.folder for name in self.experiment.sets for run in self.runs[cell, name].values()]

    def origins(self, cell: str) -> list[Origins]:
        """What led to the models of a cell, by seed; the sets are those of one model."""
        by_seed: dict[int | None, Finished] = {}
        for name in self.experiment.sets:
            by_seed = self.runs[cell, name] | by_seed
        return [origins_of(run.folder) for run in by_seed.values()]

    def scores(self, metrics: Iterable[str], wanted: Callable[[Prediction], bool] = lambda prediction: True) -> Scores:
        """The scores on the questions that are wanted."""
        scores = {}
        for ((cell, name), runs), metric in itertools.product(self.runs.items(), metrics):
            values = {
                seed: {
                    id: each.scores[metric]
                    for id, each in run.predictions.items()
                    if metric in each.scores and wanted(each)
                }
                for seed, run in runs.items()
            }
            if means := over_seeds(list(values.values())):
                seeds = {seed: sum(each.values()) / len(each) for seed, each in values.items()}
                scores[cell, name, metric] = Score(bootstrap_interval(list(means.values())), seeds, len(means))
        return scores

    def table(self, metric: str, scores: Scores) -> Table:
        """A score of every cell on every set."""
        rows = [
            [cell, *(self.shown((cell, name, metric), scores) for name in self.experiment.sets)]
            for cell in self.experiment.cells
        ]
        return _caption(metric), ["cell", *self.experiment.sets.values()], rows

    def table_by_seed(self, metric: str, scores: Scores) -> Table:
        """A score of every seed of every cell on every set."""
        experiment, places = self.experiment, metric_named(metric).decimals

        def shown(cell: str, name: str, seed: int | None) -> str:
            if (score := scores.get((cell, name, metric))) and seed in score.seeds:
                return f"{score.seeds[seed]:.{places}f}"
            return NO_SCORE if seed in self.runs[cell, name] else NOT_RUN

        rows = [
            [cell if seed is None else f"{cell}, seed {seed}", *(shown(cell, name, seed) for name in experiment.sets)]
            for cell in experiment.cells
            for seed in experiment.planned(cell, next(iter(experiment.sets)))
        ]
        return _caption(metric), ["cell", *experiment.sets.values()], rows

    def shown(self, place: tuple[str, str, str], scores: Scores) -> str:
        """A score with its interval."""
        cell, name, metric = place
        if (score := scores.get(place)) is None:
            return NO_SCORE if self.runs[cell, name] else NOT_RUN
        decimals = metric_named(metric).decimals
        deviation = standard_deviation(list(score.seeds.values()))
        mean = f"{score.interval.mean:.{decimals}f}" + (f" ± {deviation:.{decimals}f}" if len(score.seeds) > 1 else "")
        return f"{mean} [{score.interval.low:.{decimals}f}, {score.interval.high:.{decimals}f}]"


def _caption(metric: str) -> str:
    return f"{metric_named(metric).label} ({metric})"


def page_of(evaluations: Evaluations, pipeline: Pipeline, command: Sequence[str], plots: Mapping[str, str]) -> str:
    """The page in Markdown; before the first run it has only what is asked and the commands.

    Args:
        evaluations: what is compared.
        pipeline: what runs it.
        command: the line that writes the page.
        plots: metric -> the file of its plot, for those that the page shows.

    Raises:
        UserError: a run's files are missing or malformed, or runs that are compared were scored by different rules.
    """
    experiment = evaluations.experiment
    scores = evaluations.scores(experiment.metrics)
    planned = sum(len(experiment.planned(*place)) for place in evaluations.runs)
    parts = [
        f"# {experiment.title}",
        experiment.text.strip(),
        f"Written from the run folders by `{shlex.join(command)}`; no number is typed by hand. "
        f"{sum(map(len, evaluations.runs.values()))} of {planned} evaluations are finished.",
    ]
    if not scores:
        return _joined([*parts, *_how(evaluations, pipeline)])
    origins = {cell: evaluations.origins(cell) for cell in experiment.cells}
    folders = {cell: evaluations.folders(cell) for cell in experiment.cells}
    differences = _differences(evaluations)
    parts += [
        *_in_short(differences),
        "## Scores",
        "Means over seeds and questions with 95% bootstrap intervals over the questions, not over trainings; ± is the "
        "standard deviation over seeds.",
        markdown([evaluations.table(metric, scores) for metric in experiment.metrics]),
        *without_a_model(experiment, evaluations.runs),
        *_by_answer(evaluations),
        *(f"![{metric}]({file})" for metric, file in plots.items()),
        "## Differences",
        "Paired by question, means over the seeds that both cells have, with 95% bootstrap intervals; an asterisk "
        "marks an interval that excludes zero. p: McNemar's exact test where scores are 0 or 1, else a permutation "
        "test, corrected for all comparisons on this page together (Holm). Seeds are averaged first: intervals and p "
        f"are over the questions, not over trainings. Where none of {PERMUTATIONS:,} permutations was as extreme, p is "
        "a bound (<).",
        markdown(_difference_tables(differences)),
        *_by_seed(evaluations, scores),
        *(["## Pairs", markdown(pair_tables(experiment.pairs))] if experiment.pairs else []),
        "## Costs",
        "Training and rollouts are sums over everything that led to a model, a mean over the seeds where they are "
        "known; seconds of training are those since its last start, unknown if that had other code or another machine. "
        "Evaluation is per question, over all sets; its seconds are those of waiting for the model, of concurrent "
        "calls added up.",
        markdown([training_costs(origins), evaluation_costs(folders)]),
        "## Overlap of training and evaluation questions",
        markdown([overlaps(origins.values())]),
        "## How it was run",
    ]
    return _joined([*parts, *_how(evaluations, pipeline)])


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts)) + "\n"


def plots_of(evaluations: Evaluations, metrics: Iterable[str]) -> dict[str, str]:
    """Metric -> its plot as SVG, for those of the metrics that some cell has: a group for each set."""
    scores = evaluations.scores(metrics)
    plots = {}
    for metric in dict.fromkeys(metric for *_, metric in scores):
        groups = {
            title: [
                charts.Dot(cell, each.mean, each.low, each.high, series=number)
                for number, cell in enumerate(evaluations.experiment.cells)
                if (score := scores.get((cell, name, metric))) and (each := score.interval)
            ]
            for name, title in evaluations.experiment.sets.items()
        }
        label = metric_named(metric).label
        what = f"{label} by set and cell, with 95% intervals; the numbers are in the tables"
        plots[metric] = charts.intervals(what, groups, f"{label}: mean with its 95% interval")
    return plots


def is_yes_or_no(prediction: Prediction) -> bool:
    """Whether the gold answer is yes or no, which a model that has learnt to say one of them often gets right."""
    return bool(prediction.answers) and normalise(prediction.answers[0]) in ("yes", "no")


def _by_answer(evaluations: Evaluations) -> list[str]:
    """The first score apart for questions answered by yes or no and for the others; empty if no set has both kinds."""
    experiment, metric = evaluations.experiment, evaluations.experiment.metrics[0]
    kinds = {
        "yes or no": evaluations.scores([metric], is_yes_or_no),
        "other": evaluations.scores([metric], lambda prediction: not is_yes_or_no(prediction)),
    }
    columns: list[tuple[str, str, Scores]] = []
    always_no = []
    for name, title in experiment.sets.items():
        numbers = {
            kind: max((each.questions for key, each in scores.items() if key[1] == name), default=0)
            for kind, scores in kinds.items()
        }
        if all(numbers.values()):
            columns += [(name, f"{title}: {numbers[kind]} {kind}", scores) for kind, scores in kinds.items()]
        runs = [run for (_, of), by_seed in evaluations.runs.items() if of == name for run in by_seed.values()]
        golds = {id: normalise(each.answers[0]) for run in runs for id, each in run.predictions.items() if each.answers}
        if golds:
            always_no.append(f"{list(golds.values()).count('no') / len(golds):.2f} on {title}")
    if not columns:
        return []
    rows = [
        [cell, *(evaluations.shown((cell, name, metric), scores) for name, _, scores in columns)]
        for cell in experiment.cells
    ]
    return [
        "Questions answered by yes or no stand apart: a model can gain on them by habit, whatever its notes say. "
        f"Always answering “no” has an exact match of {', '.join(always_no)}.",
        markdown([(f"{_caption(metric)} by the gold answer", ["cell", *(title for _, title, _ in columns)], rows)]),
    ]


def _by_seed(evaluations: Evaluations, scores: Scores) -> list[str]:
    """The scores of each seed; empty where there are no seeds, whose table would be that of the scores."""
    if not evaluations.experiment.seeds:
        return []
    return [
        "## Seeds",
        markdown([evaluations.table_by_seed(metric, scores) for metric in evaluations.experiment.metrics]),
    ]


class _Difference(NamedTuple):
    """What one comparison found on one set, and if nothing, why."""

    first: str
    second: str
    set_title: str
    found: Comparison
    otherwise: str


def _differences(evaluations: Evaluations) -> list[_Difference]:
    """Every comparison on every set, p-values corrected for all of them."""
    experiment = evaluations.experiment
    places = [(first, second, name) for first, second in experiment.compare for name in experiment.sets]
    comparisons: list[Comparison] = []
    otherwise: list[str] = []
    for first, second, name in places:
        runs = evaluations.runs[first, name], evaluations.runs[second, name]
        before, after = _of_shared_seeds(*runs)
        found = compare_uncorrected(before, after) if before and after else {}
        comparisons.append({metric: found[metric] for metric in experiment.metrics if metric in found})
        otherwise.append(NO_SCORE if before and after else "no seed in common" if all(runs) else NOT_RUN)
    return [
        _Difference(first, second, experiment.sets[name], comparison, reason)
        for (first, second, name), comparison, reason in zip(places, corrected(comparisons), otherwise, strict=True)
    ]


def _of_shared_seeds(before: Runs, after: Runs) -> tuple[list[Path], list[Path]]:
    """The runs of two cells that can be compared: where both have seeds, those of the seeds that both have."""
    if None not in before and None not in after:
        shared = before.keys() & after.keys()
        before, after = ({seed: run for seed, run in side.items() if seed in shared} for side in (before, after))
    return [run.folder for run in before.values()], [run.folder for run in after.values()]


def _in_short(differences: Sequence[_Difference]) -> list[str]:
    """What rose and what fell, a row for each comparison; empty if none ran."""
    if not any(each.found for each in differences):
        return []
    rows: dict[str, dict[str, str]] = {}
    for first, second, title, found, otherwise in differences:
        changes = []
        for metric, paired in found.items():
            if paired.difference.excludes_zero:
                amount = f"{paired.difference.mean:+.{metric_named(metric).decimals}f}"
                p_value = p_value_text(metric, paired.p_value, paired.at_floor)
                changes.append(f"{metric} {amount} (p {p_value})")
        rows.setdefault(f"{first} → {second}", {})[title] = ", ".join(changes) or ("none" if found else otherwise)
    titles = list(next(iter(rows.values())))
    table = [[comparison, *(row[title] for title in titles)] for comparison, row in rows.items()]
    return [
        "## In short",
        "The paired differences whose 95% interval excludes zero; p is corrected for all comparisons on this page. The "
        "whole tables are under “Differences”.",
        markdown([("What rose and what fell", ["comparison", *titles], table)]),
    ]


def _difference_tables(differences: Iterable[_Difference]) -> list[Table]:
    """A table for each comparison."""
    tables: dict[tuple[str, str], list[list[str]]] = {}
    for first, second, title, found, otherwise in differences:
        rows = tables.setdefault((first, second), [])
        for metric, paired in found.items():
            digits, each = metric_named(metric).decimals, paired.difference
            rows.append(
                [
                    f"{metric}, {title}",
                    f"{paired.before:.{digits}f}",
                    f"{paired.after:.{digits}f}",
                    each.text(digits, "+") + (" *" if each.excludes_zero else ""),
                    p_value_text(metric, paired.p_value, paired.at_floor),
                    str(paired.questions),
                ]
            )
        if not found:
            rows.append([title, "", "", otherwise, "", ""])
    header = ["score", "before", "after", "difference", "p", "questions"]
    return [(f"{first} → {second}", header, rows) for (first, second), rows in tables.items()]


def _how(evaluations: Evaluations, pipeline: Pipeline) -> list[str]:
    """Code, machine and settings of the evaluations, and the commands of the pipeline."""
    folders = [folder for cell in evaluations.experiment.cells for folder in evaluations.folders(cell)]
    starts = [
        f"- {code_of(start)}; {listed(start.hardware)}; {listed(start.packages)}"
        for folder in folders
        if (record := read_run_record(folder))
        for start in record.starts
    ]
    commands = "\n".join(
        f"# {run.title}\n{shlex.join(run.command_line('$shard' if run.shards > 1 else 1))}" for run in pipeline.runs
    )
    hashes = "\n".join(f"{folder}: {read_metrics(folder / 'metrics.json').config_hash}" for folder in folders)
    return [
        "\n".join(dict.fromkeys(starts)),
        _details(f"The commands of the {len(pipeline.runs)} runs", commands),
        _details(f"Hashes of the settings of {len(folders)} evaluations", hashes) if hashes else "",
    ]


def _details(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n```text\n{text}\n```\n\n</details>"
