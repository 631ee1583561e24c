"""`notewriter results FILE`: the page of an experiment, from its run folders.

    notewriter results experiments/e1 --output docs/results/e1.md

The key `results` of the pipeline file says which runs are compared; give the command the same `--set` and
`--output_dir` as the pipeline. Runs that do not exist yet are listed as not run; before the first one, the page
has only the question and the commands.
"""

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.predictions import Prediction
from notewriter.artifacts.run_record import read_run_record
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.comparing import compare_uncorrected
from notewriter.experiments.experiment import Experiment, Runs, read_experiment
from notewriter.experiments.files import changes_of
from notewriter.experiments.note_controls import without_a_model
from notewriter.experiments.origins import (
    NOT_RUN,
    code_of,
    evaluation_costs,
    listed,
    origins_of,
    overlaps,
    training_costs,
)
from notewriter.experiments.pair_sets import pair_tables
from notewriter.experiments.run import Pipeline
from notewriter.experiments.values import score
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.text import normalise
from notewriter.pages import charts
from notewriter.pages.tables import Table, markdown

NO_SCORE = "–"
"""Of a run that has no such score, as without notes."""

PLOTS = 2
"""How many of the metrics that are shares have a plot, from the first on; its axis ends at 1."""

Wanted = Callable[[Prediction], bool]


@dataclass
class ResultsArguments:
    """The experiment, and where its page is written."""

    file: Annotated[str, MinLen(1)] = field(
        metadata={"help": "the experiment: a pipeline file or a recipe; `--file` may be omitted if it comes first"}
    )
    output: str = field(metadata={"help": "the Markdown file to write; plots are SVG files beside it"})
    output_dir: str | None = field(
        default=None, metadata={"help": "the folder of the runs, in place of the one in the file"}
    )
    set: list[str] = field(
        default_factory=list, metadata={"help": "variables of the file with other values: NAME=VALUE ..."}
    )


def main(argv: list[str]) -> None:
    """Write the page and its plots."""
    command = ["notewriter", "results", *argv]
    if argv and not argv[0].startswith("-"):
        argv = ["--file", *argv]
    (arguments,) = parse(ResultsArguments, argv, prog="notewriter results", description=__doc__)
    output = Path(arguments.output)
    if output.suffix != ".md":
        raise UserError(f"--output {output}: is not a Markdown file; give a path that ends with .md")
    experiment, pipeline = read_experiment(Path(arguments.file), arguments.output_dir, changes_of(arguments.set))
    shares = [metric for metric in experiment.metrics if metric_named(metric).share]
    plots = {metric: plot for metric in shares[:PLOTS] if (plot := _plot(experiment, metric))}
    files = {metric: f"{output.stem}-{metric}.svg" for metric in plots}
    page = _page(experiment, pipeline, command, files)
    for metric, file in files.items():
        jsonl.write_text(output.with_name(file), [plots[metric]])
    jsonl.write_text(output, [page])
    sys.stdout.write(f"{output}: written\n")


def _page(experiment: Experiment, pipeline: Pipeline, command: list[str], plots: dict[str, str]) -> str:
    """The page in Markdown, with the files of its plots by metric; `command` is the line that writes it.

    Raises:
        UserError: a run's files are missing or malformed, or runs that are compared were scored by different rules.
    """
    finished = sum(map(len, experiment.runs.values()))
    planned = sum(len(experiment.planned(*place)) for place in experiment.runs)
    parts = [
        f"# {experiment.title}",
        experiment.text.strip(),
        f"Written from the run folders by `{shlex.join(command)}`; no number is typed by hand. "
        f"{finished} of {planned} evaluations are finished.",
    ]
    if finished:
        seeds = experiment.seeds
        origins = {
            cell: [origins_of(run.folder) for run in experiment.by_seed(cell).values()] for cell in experiment.cells
        }
        folders = {cell: experiment.folders(cell) for cell in experiment.cells}
        parts += [
            "## Scores",
            "Means over seeds and questions with 95% bootstrap intervals over the questions, not over trainings; ± is "
            "the standard deviation over seeds.",
            markdown([_scores(experiment, metric) for metric in experiment.metrics]),
            *without_a_model(experiment),
            *_by_answer(experiment),
            *(f"![{metric}]({file})" for metric, file in plots.items()),
            "## Differences",
            "Paired by question, means over the seeds that both cells have, with 95% bootstrap intervals over the "
            "questions, not over trainings.",
            markdown([_differences(experiment, *pair) for pair in experiment.compare]),
            *(["## Seeds", markdown([_by_seed(experiment, each) for each in experiment.metrics])] if seeds else []),
            *(["## Pairs", markdown(pair_tables(experiment.pairs))] if experiment.pairs else []),
            "## Costs",
            "Training and rollouts are sums over everything that led to a model, a mean over the seeds where they are "
            "known; seconds of training are those since its last start, unknown if that had other code or another "
            "machine. Evaluation is per question, over all sets; its seconds are those of waiting for the model, of "
            "concurrent calls added up.",
            markdown([training_costs(origins), evaluation_costs(folders)]),
            "## Overlap of training and evaluation questions",
            markdown([overlaps(origins.values())]),
            "## How it was run",
        ]
    return "\n\n".join(filter(None, [*parts, *_how(experiment, pipeline)])) + "\n"


def _caption(metric: str) -> str:
    return f"{metric_named(metric).label} ({metric})"


def _shown(metric: str, runs: Runs, wanted: Wanted = lambda prediction: True) -> str:
    """A score with its interval, and with the deviation over several seeds."""
    if not (found := score(metric, list(runs.values()), wanted)):
        return NO_SCORE if runs else NOT_RUN
    places = metric_named(metric).decimals
    mean, _, bounds = found.interval.text(places).partition(" ")
    deviation = f" ± {found.deviation:.{places}f}" if len(found.runs) > 1 else ""
    return f"{mean}{deviation} {bounds}"


def _scores(experiment: Experiment, metric: str) -> Table:
    """A score of every cell on every set."""
    rows = [[cell, *(_shown(metric, experiment.runs[cell, of]) for of in experiment.sets)] for cell in experiment.cells]
    return _caption(metric), ["cell", *experiment.sets.values()], rows


def _by_seed(experiment: Experiment, metric: str) -> Table:
    """The mean score of every seed of every cell on every set."""

    def shown(runs: Runs, seed: int | None) -> str:
        return _shown(metric, {seed: runs[seed]} if seed in runs else {}).partition(" [")[0]

    rows = [
        [
            cell if seed is None else f"{cell}, seed {seed}",
            *(shown(experiment.runs[cell, of], seed) for of in experiment.sets),
        ]
        for cell in experiment.cells
        for seed in experiment.planned(cell, next(iter(experiment.sets)))
    ]
    return _caption(metric), ["cell", *experiment.sets.values()], rows


def _plot(experiment: Experiment, metric: str) -> str:
    """A score of every cell as SVG, a group for each set; empty if no cell has it."""
    label = metric_named(metric).label
    groups: dict[str, list[charts.Dot]] = {title: [] for title in experiment.sets.values()}
    for number, cell in enumerate(experiment.cells):
        for of, title in experiment.sets.items():
            if found := score(metric, list(experiment.runs[cell, of].values())):
                mean = found.interval
                groups[title].append(charts.Dot(cell, mean.mean, mean.low, mean.high, series=number))
    what = f"{label} by set and cell, with 95% intervals; the numbers are in the tables"
    return charts.intervals(what, groups, f"{label}: mean with its 95% interval") if any(groups.values()) else ""


def _is_yes_or_no(prediction: Prediction) -> bool:
    return bool(prediction.answers) and normalise(prediction.answers[0]) in ("yes", "no")


def _by_answer(experiment: Experiment) -> list[str]:
    """The first score apart for questions answered by yes or no and for the others; empty if no set has both kinds."""
    metric = experiment.metrics[0]
    columns: list[tuple[str, str, Wanted]] = []
    always_no = []
    for of, title in experiment.sets.items():
        runs = [run for cell in experiment.cells for run in experiment.runs[cell, of].values()]
        asked = {id: each for run in runs for id, each in run.predictions.items() if each.answers}
        closed = sum(map(_is_yes_or_no, asked.values()))
        if 0 < closed < len(asked):
            columns += [
                (of, f"{title}: {closed} yes or no", _is_yes_or_no),
                (of, f"{title}: {len(asked) - closed} other", lambda each: not _is_yes_or_no(each)),
            ]
        if asked:
            right = sum(normalise(each.answers[0]) == "no" for each in asked.values())
            always_no.append(f"{right / len(asked):.2f} on {title}")
    if not columns:
        return []
    rows = [
        [cell, *(_shown(metric, experiment.runs[cell, of], wanted) for of, _, wanted in columns)]
        for cell in experiment.cells
    ]
    return [
        "Questions answered by yes or no stand apart: a model can gain on them by habit, whatever its notes say. "
        f"Always answering “no” has an exact match of {', '.join(always_no)}.",
        markdown([(f"{_caption(metric)} by the gold answer", ["cell", *(title for _, title, _ in columns)], rows)]),
    ]


def _differences(experiment: Experiment, first: str, second: str) -> Table:
    """The differences of two cells in every score on every set."""
    rows = []
    for of, title in experiment.sets.items():
        runs = experiment.runs[first, of], experiment.runs[second, of]
        before, after = _of_shared_seeds(*runs)
        found = compare_uncorrected(before, after) if before and after else {}
        for metric, paired in found.items():
            if metric in experiment.metrics:
                places, means = metric_named(metric).decimals, (paired.before, paired.after)
                row = [f"{metric}, {title}", *(f"{mean:.{places}f}" for mean in means)]
                rows.append([*row, paired.difference.text(places, "+"), str(paired.questions)])
        if not found.keys() & {*experiment.metrics}:
            why = NO_SCORE if before and after else "no seed in common" if all(runs) else NOT_RUN
            rows.append([title, "", "", why, ""])
    return f"{first} → {second}", ["score", "before", "after", "difference", "questions"], rows


def _of_shared_seeds(before: Runs, after: Runs) -> tuple[list[Path], list[Path]]:
    """The runs of two cells that can be compared: where both have seeds, those of the seeds that both have."""
    if None not in before and None not in after:
        shared = before.keys() & after.keys()
        before, after = ({seed: run for seed, run in side.items() if seed in shared} for side in (before, after))
    return [run.folder for run in before.values()], [run.folder for run in after.values()]


def _how(experiment: Experiment, pipeline: Pipeline) -> list[str]:
    """Code, machine and settings of the evaluations, and the commands of the pipeline."""
    folders = [folder for cell in experiment.cells for folder in experiment.folders(cell)]
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
