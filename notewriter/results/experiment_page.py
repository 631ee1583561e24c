"""The page of an experiment: its tests, scores, differences, notes and costs, in Markdown."""

import hashlib
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from notewriter.artifacts.notes import Notes, read_notes, write_notes
from notewriter.artifacts.predictions import Prediction
from notewriter.artifacts.run_record import code_of, listed, read_run_record
from notewriter.evaluation.controls import SENTENCES, SHOWN
from notewriter.evaluation.notes import ANSWER, FACTS
from notewriter.evaluation.statistics import holm
from notewriter.experiments.compared import BEST
from notewriter.experiments.files import filled
from notewriter.experiments.run import Pipeline
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.text import is_yes_no, normalise
from notewriter.pages.tables import Table
from notewriter.results import published_notes
from notewriter.results.compare import Difference, difference, p_value_text, paired
from notewriter.results.experiment import Experiment, Place
from notewriter.results.measures import Wanted, all_questions, measure, score
from notewriter.results.origins import evaluation_costs, origins_of, overlaps, training_costs
from notewriter.results.page import Part, Section, as_markdown, write_markdown
from notewriter.results.pair_sets import pair_tables
from notewriter.results.plots import plots_of
from notewriter.results.runs import Run, Runs
from notewriter.results.tables import comparison_table
from notewriter.results.without_a_model import against_controls

NOT_RUN = "not run"

NO_SCORE = "–"
"""The cell of a run without this score, such as a run without notes."""

CONTROLS = "Notes without a model"
"""The heading of that section."""

FOLDERS = "the run folders"
"""Where a page's runs are read, unless from published notes; before the first of them too."""

YOURS = '{"mine": "runs/mine/{{ set }}"}'
"""An example value of `--rows`."""

ENOUGH_SEEDS = 5
"""With fewer, the bootstrap over seeds and questions contains the true difference too seldom."""


@dataclass
class ExperimentArguments:
    """Where an experiment's page is written, and further runs on it."""

    output: str | None = option(
        None, "the Markdown file to write; plots are SVG files beside it, and the notes a Parquet file"
    )
    from_notes: str | None = option(
        None, "read the runs from this file of notes, which lies beside an earlier page, instead of from folders"
    )
    index: str | None = option(
        None,
        "with --from_notes: the index that the runs searched, for scores that the file of notes lacks",
    )
    rows: dict[str, str] = field(
        default_factory=dict,
        metadata={"help": f"further rows: heading -> path of its runs, e.g. {YOURS}"},
    )


def write_page(experiment: Experiment, pipeline: Pipeline, arguments: ExperimentArguments, command: list[str]) -> None:
    """Write the page, its plots and its notes.

    Raises:
        UserError: the page is no Markdown file, runs or published notes are missing or malformed, or runs that are
            compared were scored by different rules.
    """
    output = Path(arguments.output or "")
    if output.suffix != ".md":
        raise UserError(f"--output {output}: is not a Markdown file; give a path that ends with .md")
    if arguments.index and not arguments.from_notes:
        raise UserError("--index has no effect: run folders name their indexes; add --from_notes, or leave it out")
    of_folders, published = experiment, published_notes.NONE
    if arguments.from_notes:
        published = read_notes(Path(arguments.from_notes))
        if arguments.index:
            published = published_notes.with_passages(published, Path(arguments.index), experiment.metrics)
        experiment = experiment.with_published(published_notes.runs_of(published))
    # What the page says of folders is kept as published where some are gone, or have other runs now.
    kept = [heading for heading, text in published.sections.items() if text]
    if published_notes.are_in(of_folders, experiment):
        published, kept = published._replace(sections=_of_folders(of_folders)), []
    notes, file = published_notes.notes_of(experiment, published), output.with_name(f"{output.stem}-notes.parquet")
    published_notes.check_kept(file, experiment, notes)
    if notes.rows:
        write_notes(file, notes)
    sections = _sections(experiment, notes, file) if any(experiment.runs.values()) else []
    again = filled(str(pipeline.variables["pipeline"]), pipeline.variables, "pipeline")
    closing = f"`notewriter pipeline {again} --dry_run true` prints the commands of its {len(pipeline.runs)} runs."
    intro = [experiment.text.strip(), _how_far(experiment, command, kept)]
    write_markdown(output, experiment.title, intro, [*sections, Section("", "", [closing])])
    sys.stdout.write(f"{output}: written\n")


def _how_far(experiment: Experiment, command: list[str], kept: Sequence[str]) -> str:
    """The sources of the page, the number of its finished runs, and the sections that are kept as published."""
    runs = [run for runs in experiment.runs.values() for run in runs.values()]
    read = sorted({"published notes" if run.published is not None else FOLDERS for run in runs}) or [FOLDERS]
    missing = [row for row in experiment.cells if row not in experiment.begun]
    return (
        f"Written from {' and '.join(read)} by `{shlex.join(command)}`. No number below is typed by hand. "
        f"{len(runs)} of {len(experiment.planned)} evaluations are finished."
        + (f" No evaluation of these cells is, and tables leave them out: {'; '.join(missing)}." if missing else "")
        + (f" Kept as published earlier, without evaluations that joined since: {'; '.join(kept)}." if kept else "")
    )


def _sections(experiment: Experiment, notes: Notes, file: Path) -> list[Section]:
    """The sections of a page with a finished run; its notes are published in a file.

    Raises:
        UserError: a run's files are missing or malformed, or runs that are compared were scored by different rules.
    """
    published = dict(notes.sections)
    parts: dict[str, Sequence[Part]] = {
        "Primary tests": _primary(experiment),
        f"Against the {BEST}": _against_best(experiment),
        "Scores": [
            "Means over seeds and questions with 95% bootstrap intervals over the questions, not over trainings; ± is "
            "the standard deviation over seeds.",
            *(_scores(experiment, metric) for metric in experiment.metrics),
        ],
        CONTROLS: [published.pop(CONTROLS, "")],
        "": [*_by_answer(experiment), *plots_of(experiment, notes)],
        "Differences": _differences(experiment),
        "Seeds": [_by_seed(experiment, experiment.metrics[0])] if experiment.seeds else [],
        "Notes side by side": published_notes.side_by_side(experiment, notes),
        "Notes and questions": [
            f"Every note with its question, passages, cell, seed and scores is in [{file.name}]({file.name}) (SHA-256 "
            f"{file_digest(file)}). With `--from_notes {shlex.quote(str(file))}` the command above writes this page "
            f"again without the run folders. With `--rows '{YOURS}'` and another `--output` too, it writes one with "
            "a further row, of your runs on the same questions.",
            published_notes.questions_asked(experiment, notes),
        ],
        **{heading: [text] for heading, text in published.items()},
    }
    return [Section("", heading, [each for each in of if each]) for heading, of in parts.items()]


def _of_folders(experiment: Experiment) -> dict[str, str]:
    """The sections on run folders and passages: heading -> Markdown."""
    origins = {row: [origins_of(run.folder) for run in experiment.by_seed(row).values()] for row in experiment.begun}
    runs = {
        row: [run for of in experiment.sets for run in experiment.runs[row, of].values()] for row in experiment.begun
    }
    parts: dict[str, Iterable[str | Table]] = {
        CONTROLS: _beside_controls(experiment) if FACTS in experiment.metrics else [],
        "Pairs": pair_tables(experiment.pairs) if experiment.pairs else [],
        "Costs": [
            "Training and rollouts are sums over everything that led to a model, a mean over the seeds where they are "
            "known; seconds of training are those since its last start, unknown if that had other code or another "
            "machine. Evaluation is per question, over all sets; its seconds are those of waiting for the model, of "
            "concurrent calls added up.",
            training_costs(origins),
            evaluation_costs(runs),
        ],
        "Overlap of training and evaluation questions": [overlaps(origins.values())],
        "How it was run": _how([run for each in runs.values() for run in each]),
    }
    return {heading: "\n\n".join(as_markdown(part) for part in of if part) for heading, of in parts.items()}


def _caption(metric: str) -> str:
    return f"{measure(metric).label} ({metric})"


def _shown(metric: str, runs: Runs, wanted: Wanted = all_questions) -> str:
    """A score with its interval, and with the deviation over several seeds."""
    if not (found := score(metric, runs.values(), wanted)):
        return NO_SCORE if runs else NOT_RUN
    places = measure(metric).decimals
    mean, _, bounds = found.interval.text(places).partition(" ")
    deviation = f" ± {found.deviation:.{places}f}" if len(found.runs) > 1 else ""
    return f"{mean}{deviation} {bounds}"


def _grid(
    caption: str, texts: Mapping[Place, str], rows: Iterable[str], columns: Mapping[str, str], head: str = "cell"
) -> Table:
    """A table of the texts of rows in columns, which have titles."""
    lines = [[row, *(texts.get((row, column), NOT_RUN) for column in columns)] for row in rows]
    return caption, [head, *columns.values()], lines


def _scores(experiment: Experiment, metric: str) -> Table:
    """A score of every row on every set."""
    texts = {place: _shown(metric, runs) for place, runs in experiment.runs.items()}
    return _grid(_caption(metric), texts, experiment.begun, experiment.sets)


def _by_seed(experiment: Experiment, metric: str) -> Table:
    """The mean score of every seed of every row on every set."""
    texts = {
        (row if seed is None else f"{row}, seed {seed}", of): _shown(metric, {seed: run}).partition(" [")[0]
        for (row, of), runs in experiment.runs.items()
        for seed, run in runs.items()
    }
    return _grid(_caption(metric), texts, dict.fromkeys(label for label, _ in texts), experiment.sets)


def _is_yes_or_no(prediction: Prediction) -> bool:
    return is_yes_no(prediction.answers)


def _by_answer(experiment: Experiment) -> list[Part]:
    """The first score apart for questions answered by yes or no and for the others; empty if no set has both kinds."""
    metric = experiment.metrics[0]
    columns: dict[str, tuple[str, Wanted]] = {}
    always_no = []
    for of, title in experiment.sets.items():
        runs = [run for row in experiment.cells for run in experiment.runs[row, of].values()]
        asked = {id: each for run in runs for id, each in run.predictions.items() if each.answers}
        closed = sum(map(_is_yes_or_no, asked.values()))
        if 0 < closed < len(asked):
            columns[f"{title}: {closed} yes or no"] = of, _is_yes_or_no
            columns[f"{title}: {len(asked) - closed} other"] = of, lambda each: not _is_yes_or_no(each)
        if asked:
            right = sum(normalise(each.answers[0]) == "no" for each in asked.values())
            always_no.append(f"{right / len(asked):.2f} on {title}")
    if not columns:
        return []

    texts = {
        (row, head): _shown(metric, experiment.runs[row, of], wanted)
        for row in experiment.begun
        for head, (of, wanted) in columns.items()
    }
    return [
        "Questions answered by yes or no stand apart: a model can gain on them by habit, whatever its notes say. "
        f"Always answering “no” has an exact match of {', '.join(always_no)}.",
        _grid(f"{_caption(metric)} by the gold answer", texts, experiment.begun, {head: head for head in columns}),
    ]


def _primary(experiment: Experiment) -> list[Part]:
    """The tests that the file names, with p-values corrected for all of them, whether they have run or not."""
    if not experiment.primary:
        return []
    named = [(each, of) for each in experiment.primary for of in each.sets or experiment.tested]
    tests = []
    for test, of in named:
        first, second = test.compare
        control = experiment.best_control(test.metric) if first == BEST else first
        runs = experiment.runs.get((control, of), {}), experiment.runs[second, of]
        called = f"{BEST} ({control})" if first == BEST and control else first
        name = f"{test.metric}: {called} → {second}, {experiment.sets[of]}"
        tests.append((name, test.metric, difference(test.metric, *runs), _why_not(*runs)))
    # A test that has not run yet counts as one without a difference.
    p_values = holm([each.found.p_value if each else 1.0 for _, _, each, _ in tests])
    rows = [
        [name, *(_tested_row(metric, each, p_value) if each else ["", "", why, "", "", "", ""])]
        for (name, metric, each, why), p_value in zip(tests, p_values, strict=True)
    ]
    header = ["test", "before", "after", "difference", "p", "seeds as unit", "p over seeds", "seeds x questions"]
    return [
        f"Named in the file of the experiment, {len(tests)} in all; everything below is exploratory. The difference is "
        "paired by question and seed, its interval of 95% resamples seeds and questions together, and p is that of the "
        "same resamples, corrected for these tests (Holm); an asterisk marks p below 0.05. Beside it the seed is the "
        "unit: a t interval and its uncorrected p."
        + (_caution({each.seeds for _, _, each, _ in tests if each}) if experiment.seeds else "")
        + _choice(experiment),
        ("Primary tests", header, rows),
    ]


def _tested_row(metric: str, each: Difference, p_value: float) -> list[str]:
    places = measure(metric).decimals
    over_seeds, p_over_seeds = each.found.seeds, each.found.seeds_p_value
    return [
        *(f"{mean:.{places}f}" for mean in (each.before, each.after)),
        _difference(metric, each) + (" *" if p_value < 0.05 else ""),
        p_value_text(metric, p_value),
        over_seeds.text(places, "+") if over_seeds else "one seed",
        "" if p_over_seeds is None else p_value_text(metric, p_over_seeds),
        f"{each.seeds} x {each.questions}",
    ]


def _caution(seeds: Collection[int]) -> str:
    """How far the intervals of tests with so many seeds can be trusted (docs/pipelines.md)."""
    most = max(seeds, default=0)
    return (
        f" With {most} seeds the first interval is too narrow where trainings differ much, and the second leaves the "
        "questions out: a claim needs both above zero, or both below."
        if 1 < most < ENOUGH_SEEDS
        else ""
    ) + (" With one seed the first interval is about that training alone." if 1 in seeds else "")


def _choice(experiment: Experiment) -> str:
    """How the best control was chosen, if a test names it."""
    if not any(test.compare[0] == BEST for test in experiment.primary):
        return ""
    names, title = ", ".join(experiment.controls), experiment.sets[experiment.chosen_on]
    return f" The {BEST} in a score is the highest of {names} on the set “{title}”, once all of them have run there."


def _against_best(experiment: Experiment) -> list[Part]:
    """Every row minus the best control, in the scores that are compared with it; empty without controls."""
    if not experiment.gains:
        return []
    rows = [row for row in experiment.begun if row not in experiment.controls]

    def table(metric: str, gains: Mapping[Place, Difference], whose: str, sets: Mapping[str, str]) -> Table:
        texts = {place: _difference(metric, each) for place, each in gains.items()}
        return _grid(f"{_caption(metric)} minus that of {whose}", texts, rows, sets)

    def over_highest(metric: str) -> Table:
        highest = {of: experiment.highest_control(metric, of) for of in experiment.tested}
        heads = {of: f"{title}: {highest[of] or NOT_RUN}" for of, title in experiment.tested.items()}
        return table(metric, experiment.gains_over(metric, highest), "the highest control on the set", heads)

    return [
        f"Every cell minus the {BEST}, paired by question and seed, with intervals of 95% that resample both.",
        *(
            table(metric, gains, experiment.best_control(metric), experiment.tested)
            for metric, gains in experiment.gains.items()
        ),
        "The same minus the control that is highest on the set itself, named above the column. The highest of "
        f"{len(experiment.controls)} on the questions that it is compared on is a little too good, so this favours it.",
        *map(over_highest, experiment.gains),
    ]


def _differences(experiment: Experiment) -> list[Part]:
    """In every score on every set, the difference of each pair of cells to compare; empty if none has begun."""
    pairs = {f"{one} → {other}": (one, other) for one, other in experiment.compare}
    pairs = {name: pair for name, pair in pairs.items() if {*pair} <= {*experiment.begun}}
    if not pairs:
        return []

    def text(metric: str, before: Runs, after: Runs) -> str:
        each = difference(metric, before, after)
        return f"{_difference(metric, each)} ({each.seeds} x {each.questions})" if each else _why_not(before, after)

    def table(metric: str) -> Table:
        texts = {
            (name, of): text(metric, experiment.runs[one, of], experiment.runs[other, of])
            for name, (one, other) in pairs.items()
            for of in experiment.sets
        }
        return _grid(_caption(metric), texts, pairs, experiment.sets, "cells")

    return [
        "Exploratory. Paired by question and by the seeds that both cells have; the 95% intervals resample seeds and "
        "questions together, of which there are as many as the brackets say.",
        *map(table, experiment.metrics),
    ]


def _difference(metric: str, each: Difference) -> str:
    """A difference with its interval."""
    return each.found.interval.text(measure(metric).decimals, "+")


def _why_not(before: Runs, after: Runs) -> str:
    """Why there is no difference of two cells on a set, if there is none."""
    if not before or not after:
        return NOT_RUN
    return NO_SCORE if paired(before, after) else "no seed in common"


def _beside_controls(experiment: Experiment) -> list[str | Table]:
    """The facts and answers in notes beside those in notes without a model; empty before the first run with notes."""
    tables: list[str | Table] = []
    missing: list[str] = []
    for of, title in experiment.sets.items():
        beside = {}
        for row in experiment.cells:
            try:
                beside[row] = against_controls([*experiment.runs[row, of].values()])
            except UserError as error:
                missing.append(f"- {row}, {title}: not shown; {error}")
        for metric in (FACTS, ANSWER):
            rows = [
                (f"{row}, {control}", metric, against[control][metric])
                for row, against in beside.items()
                for control in SHOWN
                if metric in against.get(control, {})
            ]
            sides = ("without a model", "the cell's notes")
            if rows:
                tables.append(comparison_table(f"{_caption(metric)}, {title}", rows, sides))
    if not tables and not missing:
        return []
    rules = "; ".join(f"`{name}`: {SENTENCES[name]}" for name in SHOWN)
    return [
        "Sentences of the passages that each cell retrieved, cut at as many words as its note of the question; "
        f"{rules}. Differences are the cell's notes minus these, paired by question; p is corrected in each cell "
        "(Holm). More words hold more facts whoever wrote them, so this is the comparison at equal words.",
        *tables,
        "\n".join(missing),
    ]


def _how(runs: Sequence[Run]) -> list[str | Table]:
    """Code, machine and settings of the evaluations."""
    starts = [
        f"- {code_of(start)}; {listed(start.hardware)}; {listed(start.packages)}"
        for run in runs
        if (record := read_run_record(run.folder))
        for start in record.starts
    ]
    settings = "".join(run.metrics.config_hash for run in runs)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:16]
    hashes = f"SHA-256 of the hashes of the settings of these evaluations, in the order of the cells: {digest}."
    return ["\n".join(dict.fromkeys(starts)), hashes]
