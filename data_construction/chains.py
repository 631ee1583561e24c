"""`notewriter chains`: have a teacher reason and search, and keep its chains for fine-tuning (ReaRAG)."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from data_construction.dataset.chains import finish, to_do
from data_construction.dataset.selection import clean_selection
from data_construction.dataset.shards import shard_of
from data_construction.options import ChainsArguments
from data_construction.reasoning import check_decompositions, check_index, roll_out
from notewriter.artifacts.rollouts import JOURNAL, ChainRollout
from notewriter.artifacts.run_folder import ResumeArguments, check_journal, defaults, drop_errors, open_run, tell_errors
from notewriter.config import parse
from notewriter.models.prices import CostArguments, check_costs
from notewriter.models.roles import ModelArguments
from notewriter.retrieval.chain import parts_of
from notewriter.rollouts.rehearsal import DryRunArguments, estimate
from notewriter.rollouts.resources import check_inputs
from notewriter.rollouts.runner import run_questions


def main(argv: list[str]) -> None:
    """Make chains; running the command again resumes it."""
    arguments, models, resume, dry, costs = parse(
        [ChainsArguments, ModelArguments, ResumeArguments, DryRunArguments, CostArguments],
        argv,
        prog="notewriter chains",
        description=__doc__,
    )
    check_index(arguments)
    parts = parts_of(arguments.index, arguments.retriever)
    check_costs(costs)
    check_inputs(models, parts)
    selection = clean_selection(arguments)
    if not arguments.reasoning:
        check_decompositions(selection.questions)
    members = shard_of(selection.questions, arguments.shard)
    work = partial(roll_out, arguments=arguments)
    if dry.dry_run:
        estimate(dry, models, parts, members, work, Path(arguments.output_dir), costs.prices)
        return
    config = asdict(arguments) | asdict(models)
    with open_run(arguments.output_dir, config, selection.questions, defaults(arguments, models)) as folder:
        journal = folder / JOURNAL
        check_journal(journal, ChainRollout)
        if resume.retry_errors:
            drop_errors(journal)
        if to_do(arguments, selection.questions, journal):
            run_questions(models, parts, members, work, journal, description="reasoning", costs=costs)
        summary = finish(arguments, folder, selection, config)
        tell_errors(journal, members)
    sys.stdout.write(summary)
