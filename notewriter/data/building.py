"""The frame of `pairs`, `gold` and `chains`: read options and inputs, roll out the questions, write the dataset."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple

from notewriter.artifacts.journal import ResumeArguments, check_journal, drop_errors, tell_errors
from notewriter.artifacts.rollouts import JOURNAL
from notewriter.data.dataset.card import read_checks, renew_checks
from notewriter.data.dataset.contents import PAIRS, Contents, Options, check_made, read_quotas
from notewriter.data.dataset.selection import Selection, clean_selection
from notewriter.data.harvest import rows_by_stage
from notewriter.data.options import PairsArguments
from notewriter.data.recipe import check_models, read_recipe
from notewriter.data.sampling import roll_out, roll_out_open_stages
from notewriter.ground.config import check, command_line, parse
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.models.prices import CostArguments, check_costs
from notewriter.models.roles import ModelArguments, policy_of
from notewriter.retrieval.chain import Part, parts_of
from notewriter.rollouts.identity import open_run
from notewriter.rollouts.rehearsal import DryRunArguments, estimate
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


def load_inputs(settings: Settings[Options]) -> tuple[list[Part], Selection]:
    """The parts of the retriever, checked, and the questions; before anything is written or started.

    Raises:
        UserError: an input is missing, malformed or contradicts another one.
    """
    parts = parts_of(settings.arguments.index, settings.arguments.retriever)
    check_costs(settings.costs)
    check_inputs(settings.models, parts)
    return parts, clean_selection(settings.arguments)


def build(
    contents: Contents[Options],
    settings: Settings[Options],
    parts: Sequence[Part],
    selection: Selection,
    roll_out: Callable[[Question, Resources], Awaitable[Record]],
    *,
    description: str,
    count: Callable[[Record], Mapping[str, int]] = lambda record: {},
    begin: Callable[[Path], Work] | None = None,
) -> None:
    """Roll out the questions in the run folder, new or resumed, and write the dataset; a dry run only estimates this.

    Args:
        contents: what the dataset is made of.
        settings: what `read_settings` returned.
        parts: the parts of the retriever.
        selection: the questions.
        roll_out: rolls out a question; returns its record.
        description: what the progress bar says.
        count: what the progress bar adds up.
        begin: given the journal, what rolls out the questions that are left; default: `roll_out`.

    Raises:
        UserError: the folder contains another run, a file cannot be written, a server or an endpoint fails, or nothing
            was made.
    """
    (arguments, models, resume, dry, costs, command), members = settings, selection.members
    if dry.dry_run:
        estimate(dry, models, parts, members, roll_out, Path(arguments.output_dir), costs.prices)
        return
    config = asdict(arguments) | asdict(models)
    policy_of(models)
    kinds = [contents.options, ModelArguments]
    with open_run(arguments.output_dir, config, selection.questions, kinds, command) as folder:
        journal = folder / JOURNAL
        check_journal(journal, contents.record)
        if resume.retry_errors:
            drop_errors(journal)
        to_do = contents.to_do(arguments, selection, journal)
        if to_do:
            work = begin(journal) if begin else roll_out
            run_questions(models, parts, members, work, journal, description=description, count=count, costs=costs)
        checks = read_checks(folder)
        made = contents.finish(arguments, folder, selection, config)
        renew_checks(folder, config, checks, changed=bool(to_do))
        errors = tell_errors(journal, members)
    sys.stdout.write(made.summary)
    # A shard may have nothing to add to the others.
    if not arguments.shard or (members and errors.total() == len(members)):
        check_made(made, folder, errors)


def run_pairs(settings: Settings[PairsArguments]) -> None:
    """Make pairs, as `notewriter pairs` does with these options.

    Raises:
        UserError: as `build`, or the options contradict each other.
    """
    recipe = read_recipe(settings.arguments)
    check_models(recipe, settings.models)
    parts, selection = load_inputs(settings)

    def begin(journal: Path) -> Work:
        quotas = read_quotas(settings.arguments, selection, journal)
        return partial(roll_out_open_stages, recipe=recipe, quotas=quotas)

    work = partial(roll_out, recipe=recipe)
    build(PAIRS, settings, parts, selection, work, description="rolling out", count=rows_by_stage, begin=begin)


def build_pairs(
    *,
    path: str | Path,
    output_dir: str | Path,
    stages: Mapping[str, str | Sequence[str]],
    dataset: str = "jsonl",
    index: str | Path | Sequence[str | Path] | None = None,
    retriever: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> Path:
    """Make preference pairs, as `notewriter pairs` does; calling it again with the same arguments resumes.

    Args:
        path: the question file.
        output_dir: the run folder.
        stages: trained stage -> its judge, or several, each of which breaks the ties of those before it, e.g.
            `{"deepnote/init_note": ["outcome", "llm"]}`; runs the methods that the stages belong to.
        dataset: the format of the question file, a key of `notewriter.datasets.BENCHMARKS`.
        index: the index to search, or several.
        retriever: the parts of a chain of retrievers, instead of an index.
        options: any other option of `notewriter pairs` by its name: the model (`serve`, or `base_url` and `model`),
            `method_options`, `temperatures`, `quotas`, ...

    Returns:
        The folder, with train.parquet and, if there are any, dev.parquet of development questions;
        `notewriter.load_pairs` reads them.

    Raises:
        UserError: an option is unknown, missing or out of range, or as the command.
    """
    indexes = [index] if isinstance(index, str | Path) else index
    run_pairs(
        _settings(
            PAIRS,
            path=str(path),
            output_dir=str(output_dir),
            stages={stage: each if isinstance(each, str) else list(each) for stage, each in stages.items()},
            dataset=dataset,
            index=indexes and [str(each) for each in indexes],
            retriever=retriever and [dict(part) for part in retriever],
            **options,
        )
    )
    return Path(output_dir)


def _settings(contents: Contents[Options], **options: Any) -> Settings[Options]:
    """The options of a command from their names and values; the rest are at their defaults.

    Raises:
        UserError: a name is unknown, or a value has the wrong type or is out of bounds.
    """
    kinds = [contents.options, *SHARED]
    names = [{each.name for each in fields(kind)} for kind in kinds]
    if unknown := options.keys() - set().union(*names):
        raise UserError(f"unknown option {min(unknown)!r}; notewriter pairs --help lists the options")
    parts = [
        kind(**{name: options[name] for name in own & options.keys()}) for kind, own in zip(kinds, names, strict=True)
    ]
    for part in parts:
        check(part)
    return Settings(*parts)
