"""`notewriter merge-shards`: one dataset of pairs or chains that were built in shards (`--shard i/n`).

The result is byte for byte what a single run over all questions writes, except for pairs with quotas. A stage that has
its quota is no longer sampled, and a shard only knows its own pairs, so each shard samples until it has its n-th part.
Together they have as many pairs, mostly from the same questions; stats.json and the card say that the quotas were kept
in shards. If a shard runs out of questions before it has its part, a stage can end below its quota: `notewriter pairs`
without --shard, with the merged folder as output_dir, then resumes until the stage has it.
"""

import heapq
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from notewriter.artifacts.journal import check_journal, finished, tell_errors
from notewriter.artifacts.rollouts import JOURNAL
from notewriter.artifacts.run_folder import questions_digest, read_config
from notewriter.artifacts.run_record import read_inputs
from notewriter.data.dataset.card import read_checks, renew_checks
from notewriter.data.dataset.contents import SHARDS, check_made, contents_of
from notewriter.data.dataset.selection import clean_selection, parse_shard, shard_of
from notewriter.ground import jsonl
from notewriter.ground.config import command_line, parse
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.identity import differences, open_run


@dataclass
class MergeShardsArguments:
    """The shards, and the output folder."""

    shards: Annotated[list[str], MinLen(1)] = field(metadata={"help": "the output folders of all shards, in any order"})
    output_dir: str = field(metadata={"help": "folder for the merged dataset, as a run without shards would write it"})


def main(argv: list[str]) -> None:
    """Merge all shards of a dataset."""
    (arguments,) = parse(MergeShardsArguments, argv, prog="notewriter merge-shards", description=__doc__)
    shards = [Path(shard) for shard in arguments.shards]
    sys.stdout.write(merge(shards, Path(arguments.output_dir), command_line("notewriter merge-shards", argv)))


def merge(folders: Sequence[Path], output_dir: Path, command: Sequence[str]) -> str:
    """Write what a run without shards would have written: the journal, the dataset, stats.json and the card.

    One question at a time is in memory. `command` is the command line, for the run's record.

    Returns:
        The summary for the terminal.

    Raises:
        UserError: a folder is not a shard, a shard is missing, duplicate or unfinished, or shards differ in a setting,
            in their questions, or in the model, index or prompts behind their paths; or nothing was made by any.
    """
    shards: dict[str, tuple[Path, dict[str, Any]]] = {}
    for folder in folders:
        config = read_config(folder)
        shard = config.get("shard")
        if shard is None or contents_of(config) is None:
            raise UserError(
                f"{folder}: is not a shard; give folders of notewriter pairs, gold or chains with --shard i/n"
            )
        if shard in shards:
            raise UserError(f"{folder}: is shard {shard}, and so is {shards[shard][0]}; give each once")
        shards[shard] = (folder, config)
    first, config = next(iter(shards.values()))
    whole = config | {"shard": None, "output_dir": str(output_dir)}
    contents = contents_of(whole)
    assert contents is not None
    kinds = [contents.options, ModelArguments]
    _check_fit(shards, first, whole, kinds)

    options = contents.read_options(whole)
    selection = clean_selection(options)
    digest = questions_digest(selection.questions)
    streams = []
    for folder, config in shards.values():
        if read_inputs(folder).get("questions") != digest:
            raise UserError(
                f"{folder}: was built from other questions than {options.path} contains now; they do not fit"
            )
        own, journal = contents.read_options(config), folder / JOURNAL
        check_journal(journal, contents.record)
        members = shard_of(selection.questions, own.shard)
        if to_do := contents.to_do(own, selection._replace(members=members), journal):
            raise UserError(f"{folder}: is not finished, {to_do} questions are left; run it again first")
        streams.append(finished(journal, members))
    places = {question.id: place for place, question in enumerate(selection.questions)}
    with open_run(output_dir, whole, selection.questions, kinds, command) as merged:
        journal, checks = merged / JOURNAL, read_checks(merged)
        before = file_digest(journal) if journal.exists() else ""
        if before:
            # What a run without shards has added to fill a quota.
            of_shards = {record["question_id"] for folder, _ in shards.values() for _, record in _records(folder)}
            added = finished(journal, selection.questions)
            streams.append(record for record in added if record["question_id"] not in of_shards)
        jsonl.write(journal, heapq.merge(*streams, key=lambda record: places[record["question_id"]]))
        jsonl.write_text(merged / SHARDS, [json.dumps({"shards": len(shards)}) + "\n"])
        made = contents.finish(options, merged, selection, whole)
        renew_checks(merged, whole, checks, changed=file_digest(journal) != before)
        check_made(made, merged, tell_errors(journal, selection.questions))
        return made.summary


def _records(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    return jsonl.read(folder / JOURNAL, journal=True)


def _check_fit(
    shards: Mapping[str, tuple[Path, dict[str, Any]]], first: Path, whole: dict[str, Any], kinds: Sequence[type]
) -> None:
    """Check that the shards are all those of one run.

    Raises:
        UserError: one is missing, or differs from the first.
    """
    inputs: dict[str, str] = {}
    last = list(shards)[-1]
    count = parse_shard(last)[1]
    for shard, (folder, config) in shards.items():
        if parse_shard(shard)[1] != count:
            raise UserError(f"{folder}: is shard {shard}, which does not go with {last}")
        for setting, (own, other) in differences(config | {"shard": None}, whole, *kinds).items():
            raise UserError(f"{folder}: has {setting}: {own!r}, but {first} has {other!r}; they do not fit")
        for name, content in read_inputs(folder).items():
            if inputs.setdefault(name, content) != content:
                raise UserError(f"{folder}: had other contents of {name} than another shard; they do not fit")
    for number in range(1, count + 1):
        if f"{number}/{count}" not in shards:
            raise UserError(f"shard {number}/{count} is missing; run it, and give its folder too")
