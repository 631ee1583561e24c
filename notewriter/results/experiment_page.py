"""The page of an experiment: its tests, scores, differences, notes and costs, in Markdown."""

import hashlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.notes import Notes, read_notes, write_notes
from notewriter.artifacts.predictions import Prediction
from notewriter.artifacts.run_record import code_of, listed, read_run_record
from notewriter.evaluation.statistics import holm
from notewriter.experiments.files import filled
from notewriter.experiments.run import Pipeline
from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.ground.text import is_yes_no, normalise
from notewriter.pages.tables import Table, markdown
from notewriter.results.compare import Difference, Runs, difference, p_value_text, paired
from notewriter.results.experiment import BEST, Experiment, Primary
from notewriter.results.measures import Wanted, all_questions, measure, score
from notewriter.results.note_controls import without_a_model
from notewriter.results.origins import (
    NOT_RUN,
    evaluation_costs,
    origins_of,
    overlaps,
    training_costs,
)
from notewriter.results.pair_sets import pair_tables
from notewriter.results.plots import plots_of
from notewriter.results.published import NONE, are_in, check_kept, notes_of, runs_of, with_passages
from notewriter.results.shown_notes import questions_asked, side_by_side

NO_SCORE = "–"
"""Of a run that has no such score, as without notes."""

CONTROLS = "Notes without a model"
"""The heading of that section."""

FOLDERS = "the run folders"
"""Where a page's runs are read, unless from published notes; before the first of them too."""

YOURS = '{"mine": "runs/mine/{{ set }}"}'
"""Of `--rows`, as an example."""

ENOUGH_SEEDS = 5
"""With fewer, the bootstrap over seeds and questions contains the true difference too seldom."""


@dataclass
class PageArguments:
    """Where an experiment's page is written, and further runs on it."""

    output: str | None = field(
        default=None,
        metadata={"help": "the Markdown file to write; plots are SVG files beside it, and the notes a Parquet file"},
    )
    from_notes: str | None = field(
        default=None,
        metadata={
            "help": "read the runs from this file of notes, which an earlier page has beside it, not from folders"
        },
    )
    index: str | None = field(
        default=None,
        metadata={
            "help": "with --from_notes: the index that its runs searched, for scores of notes and passages that the "
            "file lacks"
        },
    )
    rows: dict[str, str] = field(
        default_factory=dict,
        metadata={"help": f"further rows: heading -> path of its runs, e.g. {YOURS}"},
    )


def write_page(experiment: Experiment, pipeline: Pipeline, arguments: PageArguments, command: list[str]) -> None:
    """Write the page, its plots and its notes.

    Raises:
        UserError: the page is no Markdown file, runs or published notes are missing or malformed, or runs that are
            compared were scored by different rules.
    """
    output = Path(arguments.output or "")
    if output.suffix != ".md":
        raise UserError(f"--output {output}: is not a Markdown file; give a path that ends with .md")
    if arguments.index and not arguments.from_notes:
        raise UserError("--index has no effect: run folders name what they searched; add --from_notes, or leave it out")
    of_folders, published = experiment, NONE
    if arguments.from_notes:
        published = read_notes(Path(arguments.from_notes))
        if arguments.index:
            published = with_passages(published, Path(arguments.index), experiment.metrics)
        experiment = replace(experiment, published=runs_of(published))
    # What the page says of folders is kept as published where some are gone, or have other runs now.
    if are_in(of_folders, experiment):
        published = published._replace(sections=_of_folders(of_folders))
    notes, file = notes_of(experiment, published), output.with_name(f"{output.stem}-notes.parquet")
    check_kept(file, experiment, notes)
    if notes.rows:
        write_notes(file, notes)
    plots = plots_of(experiment, notes)
    files = {name: f"{output.stem}-{name}.svg" for name in plots}
    page = _page(experiment, pipeline, command, notes, file, files)
    for name, plot in files.items():
        jsonl.write_text(output.with_name(plot), [plots[name]])
    jsonl.write_text(output, [page])
    sys.stdout.write(f"{output}: written\n")


def _page(
    experiment: Experiment, pipeline: Pipeline, command: list[str], notes: Notes, file: Path, plots: dict[str, str]
) -> str:
    """The page in Markdown.

    Args:
        experiment: with its runs.
        pipeline: the file's.
        command: the line that writes the page.
        notes: what the runs wrote.
        file: where they are published.
        plots: plot -> file.

    Raises:
        UserError: a run's files are missing or malformed, or runs that are compared were scored by different rules.
    """
    finished = sum(map(len, experiment.runs.values()))
    planned = sum(len(experiment.planned(*place)) for place in experiment.runs)
    parts = [
        f"# {experiment.title}",
        experiment.text.strip(),
        f"Written from {_sources(experiment)} by `{shlex.join(command)}`; "
        f"no number below is typed by hand. {finished} of {planned} evaluations are finished." + _not_begun(experiment),
    ]
    sections = dict(notes.sections)
    if finished:
        parts += [
            *_primary(experiment),
            *_against_best(experiment),
            "## Scores",
            "Means over seeds and questions with 95% bootstrap intervals over the questions, not over trainings; ± is "
            "the standard deviation over seeds.",
            markdown([_scores(experiment, metric) for metric in experiment.metrics]),
            _section(CONTROLS, sections.pop(CONTROLS, "")),
            *_by_answer(experiment),
            *(f"![{name}]({plot})" for name, plot in plots.items()),
            *_differences(experiment),
            *(["## Seeds", markdown([_by_seed(experiment, experiment.metrics[0])])] if experiment.seeds else []),
            *side_by_side(experiment, notes),
            "## Notes and questions",
            f"Every note with its question, passages, cell, seed and scores is in [{file.name}]({file.name}) (SHA-256 "
            f"{file_digest(file)}). With `--from_notes {shlex.quote(str(file))}` the command above writes this page "
            f"again without the run folders; with `--rows '{YOURS}'` and another `--output` too, it writes one with "
            "a further row, of your runs on the same questions.",
            markdown([questions_asked(experiment, notes)]),
            *(_section(heading, text) for heading, text in sections.items()),
        ]
    again = filled(str(pipeline.variables["pipeline"]), pipeline.variables, "pipeline")
    parts.append(f"`notewriter pipeline {again} --dry_run true` prints the commands of its {len(pipeline.runs)} runs.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _sources(experiment: Experiment) -> str:
    """Where the page's runs were read."""
    runs = [run for runs in experiment.runs.values() for run in runs.values()]
    return (
        " and ".join(sorted({"published notes" if run.published is not None else FOLDERS for run in runs})) or FOLDERS
    )


def _not_begun(experiment: Experiment) -> str:
    """The cells without a run, which tables leave out."""
    missing = [cell for cell in experiment.cells if cell not in experiment.begun]
    return f" Of these cells none is, and tables leave them out: {'; '.join(missing)}." if missing else ""


def _section(heading: str, text: str) -> str:
    return f"## {heading}\n\n{text}" if text else ""


def _of_folders(experiment: Experiment) -> dict[str, str]:
    """What the page says of the run folders themselves, and of the passages: heading -> Markdown."""
    origins = {cell: [origins_of(run.folder) for run in experiment.by_seed(cell).values()] for cell in experiment.begun}
    folders = {cell: experiment.folders(cell) for cell in experiment.begun}
    return {
        CONTROLS: without_a_model(experiment),
        "Pairs": markdown(pair_tables(experiment.pairs)) if experiment.pairs else "",
        "Costs": "Training and rollouts are sums over everything that led to a model, a mean over the seeds where they "
        "are known; seconds of training are those since its last start, unknown if that had other code or another "
        "machine. Evaluation is per question, over all sets; its seconds are those of waiting for the model, of "
        "concurrent calls added up.\n\n" + markdown([training_costs(origins), evaluation_costs(folders)]),
        "Overlap of training and evaluation questions": markdown([overlaps(origins.values())]),
        "How it was run": _how([folder for each in folders.values() for folder in each]),
    }


def _caption(metric: str) -> str:
    return f"{measure(metric).metric.label} ({metric})"


def _shown(metric: str, runs: Runs, wanted: Wanted = all_questions) -> str:
    """A score with its interval, and with the deviation over several seeds."""
    if not (found := score(metric, list(runs.values()), wanted)):
        return NO_SCORE if runs else NOT_RUN
    places = measure(metric).metric.decimals
    mean, _, bounds = found.interval.text(places).partition(" ")
    deviation = f" ± {found.deviation:.{places}f}" if len(found.runs) > 1 else ""
    return f"{mean}{deviation} {bounds}"


def _scores(experiment: Experiment, metric: str) -> Table:
    """A score of every cell on every set."""
    rows = [[cell, *(_shown(metric, experiment.runs[cell, of]) for of in experiment.sets)] for cell in experiment.begun]
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
        for cell in experiment.begun
        for seed in experiment.by_seed(cell)
    ]
    return _caption(metric), ["cell", *experiment.sets.values()], rows


def _is_yes_or_no(prediction: Prediction) -> bool:
    return is_yes_no(prediction.answers)


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
        for cell in experiment.begun
    ]
    return [
        "Questions answered by yes or no stand apart: a model can gain on them by habit, whatever its notes say. "
        f"Always answering “no” has an exact match of {', '.join(always_no)}.",
        markdown([(f"{_caption(metric)} by the gold answer", ["cell", *(title for _, title, _ in columns)], rows)]),
    ]


def _primary(experiment: Experiment) -> list[str]:
    """The tests that the file names, with p-values corrected for all of them, whether they have run or not."""
    if not experiment.primary:
        return []
    sets = [of for of in experiment.sets if of != experiment.chosen_on]
    tests = [(test, of) for test in experiment.primary for of in test.sets or sets]
    found = [_tested(experiment, test, of) for test, of in tests]
    # A test that has not run yet counts as one without a difference.
    p_values = holm([each.found.p_value if each else 1.0 for _, each, _ in found])
    rows = []
    for (test, of), (first, each, why), p_value in zip(tests, found, p_values, strict=True):
        name = f"{test.metric}: {first} → {test.compare[1]}, {experiment.sets[of]}"
        rows.append([name, *(_tested_row(test.metric, each, p_value) if each else ["", "", why, "", "", "", ""])])
    header = ["test", "before", "after", "difference", "p", "seeds as unit", "p over seeds", "seeds x questions"]
    return [
        "## Primary tests",
        f"Named in the file of the experiment, {len(tests)} in all; everything below is exploratory. The difference is "
        "paired by question and seed, its interval of 95% resamples seeds and questions together, and p is that of the "
        "same resamples, corrected for these tests (Holm); an asterisk marks p below 0.05. Beside it the seed is the "
        "unit: a t interval and its uncorrected p." + _caution(experiment) + _choice(experiment),
        markdown([("Primary tests", header, rows)]),
    ]


def _against_best(experiment: Experiment) -> list[str]:
    """Every cell minus the best control, in the scores that are compared with it; empty without controls."""
    sets = {of: title for of, title in experiment.sets.items() if of != experiment.chosen_on}

    def table(caption: str, gains: Mapping[tuple[str, str], Difference], metric: str, heads: Sequence[str]) -> Table:
        rows = [
            [cell, *(_difference(metric, gains[cell, of]) if (cell, of) in gains else NOT_RUN for of in sets)]
            for cell in experiment.begun
            if cell not in experiment.controls
        ]
        return caption, ["cell", *heads], rows

    chosen, highest = [], []
    for metric, gains in experiment.gains.items():
        chosen.append(
            table(
                f"{_caption(metric)} minus that of {experiment.best_control(metric)}", gains, metric, [*sets.values()]
            )
        )
        heads = [f"{title}: {experiment.highest_control(metric, of) or NOT_RUN}" for of, title in sets.items()]
        highest.append(
            table(
                f"{_caption(metric)} minus that of the highest control on the set",
                experiment.gains_over_highest[metric],
                metric,
                heads,
            )
        )
    if not chosen:
        return []
    return [
        f"## Against the {BEST}",
        f"Every cell minus the {BEST}, paired by question and seed, with intervals of 95% that resample both.",
        markdown(chosen),
        "The same minus the control that is highest on the set itself, named above the column. The highest of "
        f"{len(experiment.controls)} on the questions that it is compared on is a little too good, so this favours it.",
        markdown(highest),
    ]


def _caution(experiment: Experiment) -> str:
    """How far the intervals of few seeds can be trusted (docs/pipelines.md)."""
    if not 1 < len(experiment.seeds) < ENOUGH_SEEDS:
        return ""
    return (
        f" With {len(experiment.seeds)} seeds the first interval is too narrow where trainings differ much, and the "
        "second leaves the questions out: a claim needs both above zero, or both below."
    )


def _choice(experiment: Experiment) -> str:
    """How the best control was chosen, if a test names it."""
    if not any(test.compare[0] == BEST for test in experiment.primary):
        return ""
    names = ", ".join(experiment.controls)
    return f" The {BEST} in a score is the highest of {names} on {experiment.sets[experiment.chosen_on]}."


def _tested(experiment: Experiment, test: Primary, of: str) -> tuple[str, Difference | None, str]:
    """What a primary test compares with on a set, what it found, and if nothing, why."""
    first, second = test.compare
    if first == BEST:
        best = experiment.best_control(test.metric)
        first = f"{BEST} ({best})" if best else BEST
    else:
        best = first
    if not best:
        return first, None, NOT_RUN
    runs = experiment.runs[best, of], experiment.runs[second, of]
    return first, difference(test.metric, *runs), _why_not(*runs)


def _tested_row(metric: str, each: Difference, p_value: float) -> list[str]:
    places = measure(metric).metric.decimals
    over_seeds, p_over_seeds = each.found.seeds, each.found.seeds_p_value
    return [
        *(f"{mean:.{places}f}" for mean in (each.before, each.after)),
        _difference(metric, each) + (" *" if p_value < 0.05 else ""),
        p_value_text(metric, p_value),
        over_seeds.text(places, "+") if over_seeds else "one seed",
        "" if p_over_seeds is None else p_value_text(metric, p_over_seeds),
        f"{each.seeds} x {each.questions}",
    ]


def _differences(experiment: Experiment) -> list[str]:
    """In every score on every set, the difference of each pair of cells to compare; empty if none has begun."""
    pairs = [pair for pair in experiment.compare if {*pair} <= {*experiment.begun}]
    if not pairs:
        return []

    def shown(metric: str, *runs: Runs) -> str:
        if not (each := difference(metric, *runs)):
            return _why_not(*runs)
        return f"{_difference(metric, each)} ({each.seeds} x {each.questions})"

    def row(metric: str, first: str, second: str) -> list[str]:
        runs = [(experiment.runs[first, of], experiment.runs[second, of]) for of in experiment.sets]
        return [f"{first} → {second}", *(shown(metric, *both) for both in runs)]

    header = ["cells", *experiment.sets.values()]
    tables = [(_caption(metric), header, [row(metric, *pair) for pair in pairs]) for metric in experiment.metrics]
    return [
        "## Differences",
        "Exploratory. Paired by question and by the seeds that both cells have; the 95% intervals resample seeds and "
        "questions together, of which there are as many as the brackets say.",
        markdown(tables),
    ]


def _difference(metric: str, each: Difference) -> str:
    """A difference with its interval."""
    return each.found.interval.text(measure(metric).metric.decimals, "+")


def _why_not(before: Runs, after: Runs) -> str:
    """Why there is no difference of two cells on a set, if there is none."""
    if not before or not after:
        return NOT_RUN
    return NO_SCORE if paired(before, after) else "no seed in common"


def _how(folders: Sequence[Path]) -> str:
    """Code, machine and settings of the evaluations."""
    starts = [
        f"- {code_of(start)}; {listed(start.hardware)}; {listed(start.packages)}"
        for folder in folders
        if (record := read_run_record(folder))
        for start in record.starts
    ]
    settings = "".join(read_metrics(folder / "metrics.json").config_hash for folder in folders)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:16]
    hashes = f"SHA-256 of the hashes of the settings of these evaluations, in the order of the cells: {digest}."
    return "\n\n".join(filter(None, ["\n".join(dict.fromkeys(starts)), hashes]))
