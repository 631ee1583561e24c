"""The worth of finished runs' notes, beside notes without a model at as many words.

Measured of every writer:

- words, facts and gold answer in the note and within 20, 40 and 80 words, and density
- the gold passages and answer that one more search finds, with the note as part of its query
- if a reader is named, how much likelier the note makes the gold answer to it

A run's notes are compared with the best control of each measure.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from notewriter.datasets.questions import INDEX, RETRIEVER
from notewriter.evaluation import notes
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.controls import CEILING, CONTENDERS, OTHER, SENTENCES, Reading, Scores, control_notes
from notewriter.evaluation.likelihood import LIKELIHOOD, YES_NO, note_gains
from notewriter.evaluation.next_search import FURTHER, Noted, scores_of, searched_again
from notewriter.evaluation.next_search import METRICS as NEXT_METRICS
from notewriter.evaluation.next_search import WORDS as QUERY_WORDS
from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.options import option
from notewriter.ground.text import is_yes_no
from notewriter.models.roles import ModelArguments
from notewriter.models.servers import keep
from notewriter.pages import charts
from notewriter.pages.tables import Table
from notewriter.results.compare import ByQuestion, Comparison, compared, corrected
from notewriter.results.measures import CURVE, HEADS, facts_curve
from notewriter.results.page import Part, Plot, Section
from notewriter.results.runs import Run
from notewriter.results.tables import comparison_table
from notewriter.results.without_a_model import highest_control
from notewriter.retrieval.chain import parts_of
from notewriter.rollouts.controls import REGRESSION
from notewriter.rollouts.regression import FITTED, Regression

OWN = "the run's notes"
"""The name of a run's writer beside the controls."""

OWN_RETRIEVER = "default: the local indexes that the runs' folders name"
"""The indexes of the next search, unless an option names them."""

CONTROLS = (*CONTENDERS, "empty", OTHER, CEILING)

COMPARED = (
    f"{notes.FACTS}_40",
    notes.WHOLE_FACTS,
    f"{notes.ANSWER}_40",
    *(metric.name for metric in NEXT_METRICS),
    LIKELIHOOD.name,
)
"""The measures by which a run's notes are compared with the best control."""


EXPLAINED = (notes.FACTS, notes.WHOLE_FACTS, notes.ANSWER, notes.DENSITY, notes.STANDS_ALONE, notes.NAMED)
"""The measures that the section explains; those within other numbers of words follow from them."""


@dataclass
class WorthArguments:
    """The options for measuring the worth of notes."""

    worth: bool = option(
        False,
        "measure the worth of notes beside notes without a model, for methods that keep a note; with a "
        "reader (--serve, or --base_url and --model), also how much likelier the notes make the gold answer",
    )
    choose_on: str | None = option(
        None,
        "worth: a finished run over training questions, on which the control to beat is chosen in each "
        "measure; default: each run's own questions, as the page mentions",
    )
    regression: str | None = option(
        None,
        "worth: the file of a fitted control (`notewriter fit-control`), which joins the others; it must "
        "not be fitted on any of these questions, nor on those of choose_on",
    )
    further: Annotated[int, Interval(ge=0)] = option(
        FURTHER, "worth: number of passages that the next search adds; 0 skips this search"
    )
    index: list[str] | None = field(default=None, metadata=INDEX | {"help": f"worth: {INDEX['help']}; {OWN_RETRIEVER}"})
    retriever: list[dict[str, Any]] | None = field(default=None, metadata=RETRIEVER)
    cut_at: Annotated[int, Interval(ge=1)] = option(
        QUERY_WORDS, "worth: number of first words of a note that the next search and the reader get"
    )


@dataclass(frozen=True)
class Worth:
    """The worth of a run's notes, and of notes without a model at as many words.

    Args:
        label: the run's name.
        readings: its questions.
        scores: writer -> question id -> measure -> value; the run's own notes are `OWN`.
    """

    label: str
    readings: list[Reading]
    scores: Scores


def worth_section(runs: Sequence[Run], arguments: WorthArguments, models: ModelArguments, logs: Path) -> Section:
    """The section of a page: the comparison with the best control, the curves of facts, a table for each run.

    Args:
        runs: the runs.
        arguments: the options.
        models: the reader, if they name one.
        logs: the folder for its server's log.

    Raises:
        UserError: as `worth_of`.
    """
    reader = models if models.serve or models.base_url or models.models else None
    fitted = FITTED.read(Path(arguments.regression)) if arguments.regression else None
    # Refused before anything is measured.
    parts_of(arguments.index, arguments.retriever)
    choosing = [Run(Path(arguments.choose_on))] if arguments.choose_on else []
    with keep() if reader else contextlib.nullcontext():
        measured = {
            run.folder: worth_of(run, arguments, reader, logs, fitted)
            for run in {run.folder: run for run in (*choosing, *runs)}.values()
        }
    worths = [measured[run.folder] for run in runs]
    chosen = measured[choosing[0].folder] if choosing else None
    parts: list[Part] = [
        *explanation(arguments, chosen),
        best_table(worths, chosen),
        Plot("worth", curves(worths, fitted)),
    ]
    return Section("worth", "What the notes are worth", [*parts, *map(writers_table, worths)])


def worth_of(
    run: Run, arguments: WorthArguments, reader: ModelArguments | None, logs: Path, fitted: Regression | None = None
) -> Worth:
    """Measure the notes of a finished run and its controls.

    Args:
        run: the run.
        arguments: the next search, and where notes are cut for it and the reader.
        reader: how the frozen reader is reached; None: without likelihoods.
        logs: the folder for its server's log.
        fitted: the control `regression`; None: without it.

    Raises:
        UserError: the run kept no notes, its questions or passages are not at hand, the regression was fitted on one of
            them, or the reader fails.
    """
    if not run.readings:
        raise UserError(f"{run.folder}: has no notes; name a run of a method that keeps one, such as deepnote")
    names = [*CONTROLS, *([REGRESSION] if fitted else [])]
    written = {
        OWN: {each.question.id: each.note for each in run.readings},
        **control_notes(run.readings, names, fitted=fitted),
    }
    questions = [each.question for each in run.readings]
    found = run_async(_next_search(run, written, arguments)) if arguments.further else {}
    gains = note_gains(written, questions, reader, logs, arguments.cut_at) if reader else {}
    scores: Scores = {writer: {} for writer in written}
    for each in run.readings:
        id, passages, at_hand = each.question.id, list(each.passages), each.at_hand
        likelihood = (YES_NO if is_yes_no(each.question.answers) else LIKELIHOOD).name
        for writer, by_question in written.items():
            note = by_question[id]
            scores[writer][id] = {
                **notes.note_worth(note, each.question, at_hand),
                **notes.names_subjects(note, passages),
                **found.get(writer, {}).get(id, {}),
                **({likelihood: gains[writer][id]} if id in gains.get(writer, {}) else {}),
            }
    return Worth(run.label or run.metrics.name, run.readings, scores)


async def _next_search(run: Run, written: Mapping[str, Mapping[str, str]], arguments: WorthArguments) -> Scores:
    async with searched_again(run.folder, parts_of(arguments.index, arguments.retriever)) as retriever:
        return {
            writer: await scores_of(
                [Noted(each.question, each.passages, by_question[each.question.id]) for each in run.readings],
                retriever,
                k=arguments.further,
                words=arguments.cut_at,
            )
            for writer, by_question in written.items()
        }


def writers_table(worth: Worth) -> Table:
    """A row for each writer with its mean in each measure."""
    measures = [name for name in HEADS if any(name in each for each in worth.scores[OWN].values())]
    rows = [
        [worth.label if writer == OWN else writer, *(_mean(by_question, name) for name in measures)]
        for writer, by_question in worth.scores.items()
    ]
    caption = f"{worth.label}: {len(worth.readings)} questions, controls at as many words as its notes"
    return caption, ["writer", *(HEADS[name] for name in measures)], rows


def _mean(by_question: ByQuestion, measure: str) -> str:
    values = [each[measure] for each in by_question.values() if measure in each]
    return f"{sum(values) / len(values):.{metric_named(measure).decimals}f}" if values else "–"


def best_table(worths: Sequence[Worth], chosen: Worth | None) -> Table:
    """A row for each run and measure: the run's notes minus the best control's, paired by question.

    p-values are corrected for all rows. `chosen` is where the best control was chosen; None: on each run's questions.
    """
    names: list[dict[str, str]] = []
    comparisons: list[Comparison] = []
    for worth in worths:
        controls = _controls(chosen or worth)
        best = {name: control for name in COMPARED if (control := highest_control(controls, name))}
        found: Comparison = {}
        for name, control in best.items():
            found |= compared([worth.scores[control]], [worth.scores[OWN]], [name])
        comparisons.append(found)
        names.append({name: f"{worth.label}, {HEADS[name]}, minus {control}" for name, control in best.items()})
    rows = [
        (labels[name], name, paired)
        for labels, comparison in zip(names, corrected(comparisons), strict=True)
        for name, paired in comparison.items()
    ]
    return comparison_table("Against the best note without a model", rows, ("best control", "its notes"))


def _controls(worth: Worth) -> Scores:
    return {writer: scores for writer, scores in worth.scores.items() if writer != OWN}


def curves(worths: Sequence[Worth], fitted: Regression | None = None) -> str:
    """The facts within the first words of notes, a panel a run, beside the best control and `gold`; an SVG image."""
    panels = []
    for worth in worths:
        shown = {"notes": {each.question.id: each.note for each in worth.readings}}
        best = highest_control(_controls(worth), notes.FACTS)
        shown |= control_notes(worth.readings, (*filter(None, [best]), CEILING), CURVE[-1], fitted)
        lines = {
            writer: facts_curve([(by_question[each.question.id], each.question) for each in worth.readings])
            for writer, by_question in shown.items()
        }
        panels.append(charts.Panel(worth.label, lines, axis="First words of the note"))
    return charts.panels(
        "Supporting facts within the first words of notes, with those of the best control and gold", panels
    )


def explanation(arguments: WorthArguments, chosen: Worth | None) -> list[str]:
    """The text before the tables of the section."""
    choice = (
        f"the one with the highest mean on the questions of {chosen.label} ({arguments.choose_on})"
        if chosen
        else "chosen on these same questions, which favours it: the best of several scores too high on them "
        "(--choose_on RUN chooses on training questions)"
    )
    names = [*CONTROLS, *([REGRESSION] if arguments.regression else [])]
    rules = "; ".join(f"{name}: {SENTENCES[name]}" for name in names)
    found_next = (
        f" Found next: what lies among the passages and {arguments.further} more, which are searched for with the "
        f"note's first {arguments.cut_at} words and the question, in "
        + ("the retriever of this command" if arguments.index or arguments.retriever else "each run's local index")
        + "."
    )
    return [
        "A note holds more the longer it is, whoever wrote it, and a rule that copies sentences writes notes too. "
        "Notes are worth something where they are above the best note without a model at as many words.",
        f"Of each measure the best control is {choice}. Differences are paired by question; an asterisk marks an "
        "interval that excludes zero; p is corrected for all rows of the table (Holm). Neither speaks of other "
        "trainings of the same model.",
        f"Controls: {rules}.",
        " ".join(f"{HEADS[name].capitalize()}: {metric_named(name).meaning}" for name in EXPLAINED)
        + " Within 20, 40 and 80 words: in the note's first ones; a control has no more words than the note."
        + (found_next if arguments.further else "")
        + " Likelihood, where a reader is named: how much likelier the note makes the gold answer, in nats per token.",
    ]
