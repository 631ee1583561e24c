"""The frame of `pairs`, `gold` and `chains`: read options and inputs, roll out the questions, write the dataset."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple

from notewriter.artifacts.journal import ResumeArguments, check_journal, drop_errors, finished, tell_errors
from notewriter.artifacts.rollouts import JOURNAL
from notewriter.artifacts.traces import Generation, Trace
from notewriter.artifacts.trackers import tracking
from notewriter.data.dataset.contents import PAIRS, Contents, Options, check_made, read_quotas
from notewriter.data.dataset.selection import Selection, clean_selection
from notewriter.data.harvest import rows_by_stage
from notewriter.data.options import PairsArguments
from notewriter.data.recipe import check_models, read_recipe
from notewriter.data.sampling import roll_out, roll_out_open_stages
from notewriter.ground.config import command_line, from_keywords, parse
from notewriter.ground.records import Question
from notewriter.methods import check_extractive
from notewriter.models.prices import CostArguments, check_costs
from notewriter.models.roles import ModelArguments, policy_of
from notewriter.retrieval.chain import Part, parts_of
from notewriter.rollouts.identity import open_run
from notewriter.rollouts.rehearsal import DryRunArguments, rehearse, report
from notewriter.rollouts.replies import count_replies, tell_of_replies
from notewriter.rollouts.resources import Resources, check_inputs
from notewriter.rollouts.runner import Record, run_questions

Work = Callable[[Question, Resources], Awaitable[Record | None]]
"""Rolls out a question; returns its record, or None if there is nothing to do."""


SHARED = (ModelArguments, ResumeArguments, DryRunArguments, CostArguments)
"""The options that the commands share."""


class Settings(NamedTuple, Generic[Options]):
    """The options of a command; `arguments` are those that only this command has.

    `command` is the command line; empty from Python.
    """

    arguments: Options
    models: ModelArguments
    resume: ResumeArguments
    dry: DryRunArguments
    costs: CostArguments
    command: Sequence[str] = ()


def read_settings(
    contents: Contents[Options], argv: Sequence[str], *, prog: str, description: str | None
) -> Settings[Options]:
    """The options of a command that builds a dataset, from its command line.

    Raises:
        UserError: as `parse`.
    """
    parts = parse([contents.options, *SHARED], argv, prog=prog, description=description)
    return Settings(*parts)._replace(command=command_line(prog, argv))


def load_inputs(settings: Settings[Options]) -> tuple[Settings[Options], list[Part], Selection]:
    """The settings as they are recorded, the parts of the retriever, and the questions, all checked.

    Nothing is written or started before.

    Raises:
        UserError: an input is missing, malformed or contradicts another one.
    """
    parts = parts_of(settings.arguments.index, settings.arguments.retriever)
    check_costs(settings.costs)
    check_extractive(settings.models.extractive_stages)
    check_inputs(settings.models, parts)
    arguments, selection = clean_selection(settings.arguments)
    return settings._replace(arguments=arguments), parts, selection


def build(
    contents: Contents[Options],
    settings: Settings[Options],
    parts: Sequence[Part],
    selection: Selection,
    roll_out: Callable[[Question, Resources], Awaitable[Record]],
    *,
    description: str,
    begin: Callable[[Path], Work] | None = None,
) -> None:
    """Roll out the questions in the run folder, new or resumed, and write the dataset; a dry run only estimates this.

    Args:
        contents: the contents of the dataset.
        settings: what `read_settings` returned.
        parts: the parts of the retriever.
        selection: the questions.
        roll_out: rolls out a question; returns its record.
        description: the label of the progress bar.
        begin: given the journal, what rolls out the questions that are left; default: `roll_out`.

    Raises:
        UserError: the folder contains another run, a file cannot be written, a server or an endpoint fails, or nothing
            was made.
    """
    arguments, models, resume, dry, costs, command = settings
    questions = selection.questions
    if dry.dry_run:
        report(rehearse(dry, models, parts, questions, roll_out, costs.prices), Path(arguments.output_dir))
        return
    config = asdict(arguments) | asdict(models)
    policy_of(models)
    kinds = [contents.options, ModelArguments]
    with (
        open_run(arguments.output_dir, config, questions, kinds, command) as folder,
        tracking(arguments.report_to, folder, config) as track,
    ):
        journal = folder / JOURNAL
        check_journal(journal, contents.record)
        if resume.retry_errors:
            drop_errors(journal)
        if contents.to_do(arguments, selection, journal):
            work = begin(journal) if begin else roll_out
            run_questions(
                models,
                parts,
                questions,
                work,
                journal,
                description=description,
                count=rows_by_stage,
                costs=costs,
                track=track,
            )
        made = contents.finish(arguments, folder, selection, config)
        errors = tell_errors(journal, questions)
        tell_of_replies(count_replies(_calls_in(journal, questions)), folder)
    sys.stdout.write(made.summary)
    check_made(made, folder, errors)


def _calls_in(journal: Path, questions: Sequence[Question]) -> Iterator[Generation]:
    """The model calls of the questions in a journal."""
    for record in finished(journal, questions):
        for trace in record.get("traces", [record["trace"]] if "trace" in record else []):
            yield from Trace.from_dict(trace, str(journal)).generations


def run_pairs(settings: Settings[PairsArguments]) -> None:
    """Make pairs, as `notewriter pairs` does with these options.

    Raises:
        UserError: as `build`, or the options contradict each other.
    """
    recipe = read_recipe(settings.arguments)
    # The run's record says what scores, not that nothing was given.
    settings = settings._replace(arguments=replace(settings.arguments, family=recipe.rules.family))
    check_models(recipe, settings.models)
    settings, parts, selection = load_inputs(settings)

    def begin(journal: Path) -> Work:
        quotas = read_quotas(settings.arguments, selection, journal)
        return partial(roll_out_open_stages, recipe=recipe, quotas=quotas)

    work = partial(roll_out, recipe=recipe)
    build(PAIRS, settings, parts, selection, work, description="rolling out", begin=begin)


def build_pairs(**options: Any) -> Path:
    """Make preference pairs, or resume the run in `output_dir`; returns this folder.

    train.parquet in it, and dev.parquet if there are pairs of development questions, are read by
    `notewriter.load_pairs`.

    Args:
        options: those of `notewriter pairs` by name, such as `dataset="jsonl", path="questions.jsonl",
            output_dir="runs/pairs", index="indexes/wiki", stages={"deepnote/init_note": ["outcome", "llm"]},
            serve="Qwen/Qwen2.5-7B-Instruct"`. A judge or method of another package or file is named as on the command
            line.

    Raises:
        UserError: an option is unknown, missing or out of bounds, an input is missing, malformed or contradicts another
            one, the folder contains another run, a server or an endpoint fails, or nothing was made.
    """
    settings: Settings[PairsArguments] = Settings(*from_keywords([PairsArguments, *SHARED], options))
    run_pairs(settings)
    return Path(settings.arguments.output_dir)
