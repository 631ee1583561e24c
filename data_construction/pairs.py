"""`notewriter pairs`: make preference pairs by running methods in the sampling rollout (DNAlign)."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from data_construction.dataset.pairs import finish, read_quotas
from data_construction.dataset.selection import clean_selection
from data_construction.dataset.shards import shard_of
from data_construction.options import PairsArguments
from data_construction.recipe import check_models, read_recipe
from data_construction.sampling import pairs_by_stage, roll_out, roll_out_open_stages
from notewriter.artifacts.rollouts import JOURNAL, PairsRollout
from notewriter.artifacts.run_folder import ResumeArguments, check_journal, defaults, drop_errors, open_run, tell_errors
from notewriter.config import parse
from notewriter.models.prices import CostArguments, check_costs
from notewriter.models.roles import ModelArguments
from notewriter.retrieval.chain import parts_of
from notewriter.rollouts.rehearsal import DryRunArguments, estimate
from notewriter.rollouts.resources import check_inputs
from notewriter.rollouts.runner import run_questions


def main(argv: list[str]) -> None:
    """Make pairs; running the command again resumes it."""
    arguments, models, resume, dry, costs = parse(
        [PairsArguments, ModelArguments, ResumeArguments, DryRunArguments, CostArguments],
        argv,
        prog="notewriter pairs",
        description=__doc__,
    )
    recipe = read_recipe(arguments)
    check_models(recipe, models)
    parts = parts_of(arguments.index, arguments.retriever)
    check_costs(costs)
    check_inputs(models, parts)
    selection = clean_selection(arguments)
    members = shard_of(selection.questions, arguments.shard)
    if dry.dry_run:
        work = partial(roll_out, recipe=recipe)
        estimate(dry, models, parts, members, work, Path(arguments.output_dir), costs.prices)
        return
    config = asdict(arguments) | asdict(models)
    with open_run(arguments.output_dir, config, selection.questions, defaults(arguments, models)) as folder:
        journal = folder / JOURNAL
        check_journal(journal, PairsRollout)
        if resume.retry_errors:
            drop_errors(journal)
        quotas = read_quotas(arguments, selection.questions, journal)
        if quotas.to_do():
            run_questions(
                models,
                parts,
                members,
                partial(roll_out_open_stages, recipe=recipe, quotas=quotas),
                journal,
                description="rolling out",
                count=pairs_by_stage,
                costs=costs,
            )
        summary = finish(arguments, folder, selection, config)
        tell_errors(journal, members)
    sys.stdout.write(summary)
