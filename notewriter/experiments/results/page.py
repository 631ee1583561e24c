"""The page of an experiment: tables, plots, costs, overlaps and commands, all from its run folders."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from notewriter.artifacts.costs import read_costs
from notewriter.artifacts.metrics import Interval, read_metrics
from notewriter.artifacts.predictions import Prediction, read_predictions
from notewriter.artifacts.run_record import read_run_record
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.comparison import Comparison, compare_uncorrected, corrected, p_value_text
from notewriter.evaluation.metrics.text import normalise
from notewriter.evaluation.statistics import PERMUTATIONS, bootstrap_interval, standard_deviation
from notewriter.experiments.pipelines.local import command_line
from notewriter.experiments.pipelines.pipeline import PROJECT, Pipeline, Stage
from notewriter.experiments.results.controls import without_a_model
from notewriter.experiments.results.experiment import Experiment
from notewriter.experiments.results.origins import Origins, origins_of, statistics_of, training_cost
from notewriter.experiments.results.pairs import pair_tables
from notewriter.pages import render
from notewriter.pages.charts import COLOURS
from notewriter.pages.tables import Table, markdown

NOT_RUN = "not run"
NO_SCORE = "–"
"""Of a run that has no such score, as without notes."""


class Score(NamedTuple):
    """A cell's score on a set: the mean over seeds and questions with its interval, and the mean of each seed."""

    interval: Interval
    seeds: dict[int | None, float]
    questions: int


Predictions = dict[tuple[str, str], dict[int | None, dict[str, Prediction]]]
"""(Cell, set) -> seed -> question id -> what a finished run predicted."""

Scores = dict[tuple[str, str, str], Score]
"""(Cell, set, metric) -> its score; without cells that were not run."""


def page_of(experiment: Experiment, pipeline: Pipeline, command: Sequence[str], plots: Mapping[str, str]) -> str:
    """The page in Markdown; before the first run it has only what is asked and the commands.

    Args:
        experiment: what is compared.
        pipeline: what runs it.
        command: the line that writes the page.
        plots: metric -> the file of its plot, for those that the page shows.

    Raises:
        UserError: a run's files are missing or malformed, or runs that are compared were scored by different rules.
    """
    predictions = _predictions(experiment)
    scores = _scores(predictions, experiment.metrics)
    begin = [
        f"# {experiment.title}",
        experiment.text.strip(),
        f"Written from the run folders by `{shlex.join(command)}`; no number is typed by hand. "
        + _completeness(experiment),
    ]
    if not scores:
        return _joined([*begin, *_how(experiment, pipeline)])
    origins = {cell: _origins(experiment, cell) for cell in experiment.cells}
    differences = _differences(experiment)
    parts = [
        *begin,
        *_in_short(differences),
        "## Scores",
        "Means over seeds and questions with 95% bootstrap intervals over the questions, not over trainings; ± is the "
        "standard deviation over seeds.",
        markdown([_score_table(experiment, scores, metric) for metric in experiment.metrics]),
        *without_a_model(experiment),
        *_by_answer(experiment, predictions),
        *(f"![{metric}]({file})" for metric, file in plots.items()),
        "## Differences",
        "Paired by question, means over the seeds that both cells have, with 95% bootstrap intervals; an asterisk "
        "marks an interval that excludes zero. p: McNemar's exact test where scores are 0 or 1, else a permutation "
        "test, corrected for all comparisons on this page together (Holm). Seeds are averaged first: intervals and p "
        f"are over the questions, not over trainings. Where none of {PERMUTATIONS:,} permutations was as extreme, p is "
        "a bound (<).",
        markdown(_difference_tables(differences)),
        *_by_seed(experiment, scores),
        *(["## Pairs", markdown(pair_tables(experiment.pairs))] if experiment.pairs else []),
        "## Costs",
        "Training and rollouts are sums over everything that led to a model, a mean over the seeds where they are "
        "known; seconds of training are those since its last start, unknown if that had other code or another machine. "
        "Evaluation is per question, over all sets; its seconds are those of waiting for the model, of concurrent "
        "calls added up.",
        markdown([_training_costs(origins), _evaluation_costs(experiment)]),
        "## Overlap of training and evaluation questions",
        markdown([_overlaps(origins.values())]),
        "## How it was run",
        *_how(experiment, pipeline),
    ]
    return _joined(parts)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts)) + "\n"


def plots_of(experiment: Experiment, metrics: Iterable[str]) -> dict[str, str]:
    """Metric -> its plot, for those of the metrics that some cell has."""
    scores = _scores(_predictions(experiment), metrics)
    found = {metric for *_, metric in scores}
    return {metric: _plot(experiment, scores, metric) for metric in metrics if metric in found}


def _plot(experiment: Experiment, scores: Scores, metric: str) -> str:
    """A score's means and intervals as SVG: a group for each set, a dot for each cell."""
    shown = {
        title: [
            (number, cell, score.interval)
            for number, cell in enumerate(experiment.cells)
            if (score := scores.get((cell, name, metric)))
        ]
        for name, title in experiment.sets.items()
    }
    highest = max(each.high for members in shown.values() for _, _, each in members)
    template = Path(__file__).with_name("plot.svg.jinja")
    return render(template, metric=metric_named(metric), groups=shown, highest=highest, colours=COLOURS)


def _predictions(experiment: Experiment) -> Predictions:
    return {
        (cell, name): {
            seed: read_predictions(run / "predictions.jsonl") for seed, run in experiment.runs(cell, name).items()
        }
        for cell in experiment.cells
        for name in experiment.sets
    }


def _scores(
    predictions: Predictions, metrics: Iterable[str], wanted: Callable[[Prediction], bool] = lambda prediction: True
) -> Scores:
    """The scores on the questions that are wanted."""
    found = {}
    for (cell, name), read in predictions.items():
        for metric in metrics:
            values = {
                seed: {id: each.scores[metric] for id, each in run.items() if metric in each.scores and wanted(each)}
                for seed, run in read.items()
            }
            shared = set.intersection(*map(set, values.values())) if values else set()
            if shared:
                means = [sum(each[question] for each in values.values()) / len(values) for question in shared]
                seeds = {seed: sum(each.values()) / len(each) for seed, each in values.items()}
                found[cell, name, metric] = Score(bootstrap_interval(means), seeds, len(shared))
    return found


def is_yes_or_no(prediction: Prediction) -> bool:
    """Whether the gold answer is yes or no, which a model that has learnt to say one of them often gets right."""
    return bool(prediction.answers) and normalise(prediction.answers[0]) in ("yes", "no")


def _by_answer(experiment: Experiment, predictions: Predictions) -> list[str]:
    """The first score apart for questions answered by yes or no and for the others; empty if no set has both kinds."""
    metric = experiment.metrics[0]
    kinds = [
        _scores(predictions, [metric], is_yes_or_no),
        _scores(predictions, [metric], lambda prediction: not is_yes_or_no(prediction)),
    ]
    columns: list[tuple[str, str, Scores]] = []
    for name, title in experiment.sets.items():
        numbers = [
            max((each.questions for key, each in kind.items() if key[1:] == (name, metric)), default=0)
            for kind in kinds
        ]
        if all(numbers):
            columns += [
                (name, f"{title}: {number} {what}", kind)
                for what, number, kind in zip(("yes or no", "other"), numbers, kinds, strict=True)
            ]
    if not columns:
        return []
    rows = [
        [cell, *(_shown(experiment, kind, (cell, name, metric)) for name, _, kind in columns)]
        for cell in experiment.cells
    ]
    label = f"{metric_named(metric).label} ({metric}) by the gold answer"
    return [
        "Questions answered by yes or no stand apart: a model can gain on them by habit, whatever its notes say. "
        f"Always answering “no” has an exact match of {_always_no(experiment, predictions)}.",
        markdown([(label, ["cell", *(title for _, title, _ in columns)], rows)]),
    ]


def _always_no(experiment: Experiment, predictions: Predictions) -> str:
    """The share of each set's questions whose gold answer is "no"."""
    told = []
    for name, title in experiment.sets.items():
        runs = [run for (_, of), seeds in predictions.items() if of == name for run in seeds.values()]
        golds = {id: normalise(each.answers[0]) for run in runs for id, each in run.items() if each.answers}
        if golds:
            told.append(f"{list(golds.values()).count('no') / len(golds):.2f} on {title}")
    return ", ".join(told)


def _completeness(experiment: Experiment) -> str:
    planned = [
        run for cell in experiment.cells for name in experiment.sets for run in experiment.planned(cell, name).values()
    ]
    finished = sum((run / "metrics.json").is_file() for run in planned)
    return f"{finished} of {len(planned)} evaluations are finished."


def _score_table(experiment: Experiment, scores: Scores, metric: str) -> Table:
    rows = [
        [cell, *(_shown(experiment, scores, (cell, name, metric)) for name in experiment.sets)]
        for cell in experiment.cells
    ]
    return f"{metric_named(metric).label} ({metric})", ["cell", *experiment.sets.values()], rows


def _shown(experiment: Experiment, scores: Scores, place: tuple[str, str, str]) -> str:
    """A score with its interval."""
    cell, name, metric = place
    if (score := scores.get(place)) is None:
        return NO_SCORE if experiment.runs(cell, name) else NOT_RUN
    places, each = metric_named(metric).decimals, score.interval
    deviation = f" ± {standard_deviation(list(score.seeds.values())):.{places}f}" if len(score.seeds) > 1 else ""
    return f"{each.mean:.{places}f}{deviation} [{each.low:.{places}f}, {each.high:.{places}f}]"


def _by_seed(experiment: Experiment, scores: Scores) -> list[str]:
    """The scores of each seed; empty where there are no seeds, whose table would be that of the scores."""
    if not experiment.seeds:
        return []
    return ["## Seeds", markdown([_seed_table(experiment, scores, metric) for metric in experiment.metrics])]


def _seed_table(experiment: Experiment, scores: Scores, metric: str) -> Table:
    places = metric_named(metric).decimals

    def shown(cell: str, name: str, seed: int | None) -> str:
        if (score := scores.get((cell, name, metric))) and seed in score.seeds:
            return f"{score.seeds[seed]:.{places}f}"
        return NO_SCORE if seed in experiment.runs(cell, name) else NOT_RUN

    rows = [
        [cell if seed is None else f"{cell}, seed {seed}", *(shown(cell, name, seed) for name in experiment.sets)]
        for cell in experiment.cells
        for seed in experiment.planned(cell, next(iter(experiment.sets)))
    ]
    return f"{metric_named(metric).label} ({metric})", ["cell", *experiment.sets.values()], rows


class _Difference(NamedTuple):
    """What one comparison found on one set, and if nothing, why."""

    first: str
    second: str
    set_title: str
    found: Comparison
    otherwise: str


def _differences(experiment: Experiment) -> list[_Difference]:
    """Every comparison on every set, p-values corrected for all of them."""
    places = [(first, second, name) for first, second in experiment.compare for name in experiment.sets]
    comparisons: list[Comparison] = []
    otherwise: list[str] = []
    for first, second, name in places:
        runs = experiment.runs(first, name), experiment.runs(second, name)
        before, after = _of_shared_seeds(*runs)
        found = compare_uncorrected(before, after) if before and after else {}
        comparisons.append({metric: found[metric] for metric in experiment.metrics if metric in found})
        otherwise.append(NO_SCORE if before and after else "no seed in common" if all(runs) else NOT_RUN)
    return [
        _Difference(first, second, experiment.sets[name], comparison, reason)
        for (first, second, name), comparison, reason in zip(places, corrected(comparisons), otherwise, strict=True)
    ]


def _of_shared_seeds(before: Mapping[int | None, Path], after: Mapping[int | None, Path]) -> tuple[list[Path], ...]:
    """The runs of two cells that can be compared: where both have seeds, those of the seeds that both have."""
    if None not in before and None not in after:
        shared = [seed for seed in before if seed in after]
        return [before[seed] for seed in shared], [after[seed] for seed in shared]
    return list(before.values()), list(after.values())


def _in_short(differences: Sequence[_Difference]) -> list[str]:
    """What rose and what fell, a row for each comparison; empty if none ran."""
    if not any(each.found for each in differences):
        return []
    rows: dict[str, dict[str, str]] = {}
    for first, second, title, found, otherwise in differences:
        told = []
        for metric, paired in found.items():
            if paired.difference.excludes_zero:
                amount = f"{paired.difference.mean:+.{metric_named(metric).decimals}f}"
                p_value = p_value_text(metric, paired.p_value, paired.at_floor)
                told.append(f"{metric} {amount} (p {p_value})")
        rows.setdefault(f"{first} → {second}", {})[title] = ", ".join(told) or ("none" if found else otherwise)
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


def _origins(experiment: Experiment, cell: str) -> list[Origins]:
    """What led to the models of a cell, by seed; the sets are those of one model."""
    by_seed: dict[int | None, Path] = {}
    for name in experiment.sets:
        by_seed = experiment.runs(cell, name) | by_seed
    return [origins_of(run) for run in by_seed.values()]


def _training_costs(origins: dict[str, list[Origins]]) -> Table:
    rows = []
    for cell, seeds in origins.items():
        if not seeds:
            rows.append([cell, *[NOT_RUN] * 6])
            continue
        costs = [training_cost(each) for each in seeds]
        rows.append(
            [
                cell,
                _mean([cost.steps for cost in costs]),
                _mean([cost.rows for cost in costs]),
                _mean([cost.tokens for cost in costs]),
                _mean([cost.seconds for cost in costs]),
                *(
                    _mean([_rollout_tokens(each, key) for each in seeds])
                    for key in ("prompt_tokens", "completion_tokens")
                ),
            ]
        )
    header = ["cell", "steps", "rows seen", "tokens trained on", "seconds"]
    return "Training and rollouts", [*header, "rollout prompt tokens", "rollout completion tokens"], rows


def _rollout_tokens(origins: Origins, key: str) -> int:
    made = statistics_of(origins.data)
    return sum((statistics.get("tokens_in_all") or {}).get(key, 0) for _, statistics in made)


def _evaluation_costs(experiment: Experiment) -> Table:
    rows = []
    for cell in experiment.cells:
        runs = [run for name in experiment.sets for run in experiment.runs(cell, name).values()]
        if not runs:
            rows.append([cell, *[NOT_RUN] * 4])
            continue
        metrics = [read_metrics(run / "metrics.json") for run in runs]
        asked = sum(each.questions for each in metrics)
        costs = [costs for run in runs if (costs := read_costs(run / "costs.json"))]
        rows.append(
            [
                cell,
                *(
                    f"{sum(each.per_question[cost] * each.questions for each in metrics) / asked:,.1f}"
                    for cost in ("calls", "prompt_tokens", "completion_tokens")
                ),
                f"{sum(each.total.seconds for each in costs) / asked:,.1f}",
            ]
        )
    return "Evaluation, per question", ["cell", "calls", "prompt tokens", "completion tokens", "seconds"], rows


def _overlaps(origins: Iterable[list[Origins]]) -> Table:
    """Each evaluation file against each folder of training data, as recorded when the data was made."""
    rows = {}
    for folder, statistics in statistics_of([path for seeds in origins for each in seeds for path in each.data]):
        for file, overlap in (statistics.get("hygiene") or {}).get("evaluation_files", {}).items():
            dropped = overlap["training_questions_dropped"]
            rows[folder, file] = [str(folder), str(file), str(overlap["questions"]), str(dropped)]
    header = ["training data", "evaluation file", "its questions", "training questions left out for overlap"]
    return "Compared when the data was made; what overlapped is not in it", header, list(rows.values())


def _how(experiment: Experiment, pipeline: Pipeline) -> list[str]:
    """Code, machine and settings of the runs, and the commands of the stages."""
    starts, settings = [], []
    for cell in experiment.cells:
        for name in experiment.sets:
            for run in experiment.runs(cell, name).values():
                record = read_run_record(run)
                for start in record.starts if record else ():
                    hardware = ", ".join(f"{key} {value}" for key, value in start.hardware.items())
                    packages = ", ".join(f"{key} {value}" for key, value in start.packages.items())
                    code = f"notewriter {start.version}" + (f" at {start.commit[:12]}" if start.commit else "")
                    starts.append(f"- {code}; {hardware}; {packages}")
                settings.append(f"{run}: {read_metrics(run / 'metrics.json').config_hash}")
    commands = "\n".join(f"# {stage.title}\n{_command(stage)}" for stage in pipeline.stages)
    return [
        "\n".join(dict.fromkeys(starts)),
        f"<details><summary>The commands of the {len(pipeline.stages)} stages</summary>\n\n"
        f"```text\n{commands}\n```\n\n</details>",
        f"<details><summary>Hashes of the settings of {len(settings)} evaluations</summary>\n\n"
        "```text\n" + "\n".join(settings) + "\n```\n\n</details>"
        if settings
        else "",
    ]


def _command(stage: Stage) -> str:
    """The command of a stage as it is given in the project's folder."""
    program, *argv = command_line(stage, "$shard" if stage.shards > 1 else 1)
    return shlex.join([Path(program).name, *argv]).replace(f"{PROJECT}/", "")


def _mean(values: Iterable[float | None]) -> str:
    """The mean of the values that are known."""
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):,.0f}" if known else "unknown"
