"""`notewriter gold`: replies from the gold evidence as conversations for SFT, a warm start before preference learning.

The methods of `gold_stages` are run as for `notewriter pairs`. At these stages the reply is written from the gold
evidence, without sampling: the supporting facts that the passages contain, a query for the first one that is missing,
the gold answer. Where the evidence cannot reply (no supporting passage was found, or an answer that nothing in the
prompt tells), the model replies and nothing is trained. Each reply becomes a conversation, the prompt as at inference
and the reply as the assistant's turn, for `training/train_sft.py --data`.
"""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from data_construction.dataset.gold import finish, to_do
from data_construction.dataset.selection import clean_selection
from data_construction.dataset.shards import shard_of
from data_construction.gold_rollout import roll_out
from data_construction.options import GoldArguments
from data_construction.recipe import read_gold_recipe
from data_construction.sampling import pairs_by_stage
from notewriter.artifacts.rollouts import JOURNAL, GoldRollout
from notewriter.artifacts.run_folder import ResumeArguments, check_journal, defaults, drop_errors, open_run, tell_errors
from notewriter.config import parse
from notewriter.models.roles import ModelArguments
from notewriter.retrieval.chain import parts_of
from notewriter.rollouts.rehearsal import PricedDryRunArguments, estimate
from notewriter.rollouts.resources import check_inputs
from notewriter.rollouts.runner import run_questions


def main(argv: list[str]) -> None:
    """Write conversations; running the command again resumes it."""
    arguments, models, resume, dry = parse(
        [GoldArguments, ModelArguments, ResumeArguments, PricedDryRunArguments],
        argv,
        prog="notewriter gold",
        description=__doc__,
    )
    recipe = read_gold_recipe(arguments)
    parts = parts_of(arguments.index, arguments.retriever)
    check_inputs(models, parts)
    selection = clean_selection(arguments)
    members = shard_of(selection.questions, arguments.shard)
    work = partial(roll_out, recipe=recipe)
    if dry.dry_run:
        estimate(dry, models, parts, members, work, Path(arguments.output_dir), dry.prices)
        return
    config = asdict(arguments) | asdict(models)
    with open_run(arguments.output_dir, config, selection.questions, defaults(arguments, models)) as folder:
        journal = folder / JOURNAL
        check_journal(journal, GoldRollout)
        if resume.retry_errors:
            drop_errors(journal)
        if to_do(arguments, selection.questions, journal):
            run_questions(models, parts, members, work, journal, description="writing", count=pairs_by_stage)
        summary = finish(arguments, folder, selection, config)
        tell_errors(journal, members)
    sys.stdout.write(summary)
