"""`notewriter merge-shards`: one dataset of pairs or chains that were built in shards (`--shard i/n`).

It is what one run over all questions would have written, to the byte, with one exception: pairs with quotas. A stage
that has its quota is no longer sampled, and a shard knows its own pairs alone, so each keeps sampling until it has
its n-th part. Together they have as many pairs, mostly of the same questions; stats.json and the card say that they
were kept in shards. Where a shard ran out of questions before it had its part, a stage can end short of its quota:
`notewriter pairs` without --shard, with the merged folder as output_dir, goes on until the stage has it.
"""

import heapq
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from annotated_types import MinLen

from data_construction import chains, pairs
from data_construction.selection import clean_selection
from data_construction.splits import JOURNAL, SHARDS
from notewriter import jsonl
from notewriter.artifacts.fingerprints import read_fingerprints
from notewriter.artifacts.run_folder import (
    check_journal,
    difference,
    finished,
    open_run,
    parse_shard,
    questions_digest,
    read_config,
    read_questions_digest,
    shard_of,
)
from notewriter.config import parse
from notewriter.errors import UserError


@dataclass
class Arguments:
    """Which shards, and where to."""

    shards: Annotated[list[str], MinLen(1)] = field(metadata={"help": "the output folders of all shards, in any order"})
    output_dir: str = field(metadata={"help": "gets the folder that a run without shards would have made"})


def main(argv: list[str]) -> None:
    """Merge shards that fit."""
    (arguments,) = parse(Arguments, argv, prog="notewriter merge-shards", description=__doc__)
    sys.stdout.write(merge([Path(shard) for shard in arguments.shards], Path(arguments.output_dir)))


def merge(folders: Sequence[Path], output_dir: Path) -> str:
    """Write what a run without shards would have: the journal, the data set, stats.json; returns its summary.

    Only one question at a time is in memory.

    Raises:
        UserError: a folder is no shard, a shard is missing, given twice or not finished, or shards differ in a
            setting, in their questions, or in the model, index or prompts behind their paths.
    """
    shards = {}
    for folder in folders:
        config = read_config(folder)
        shard, command = config.get("shard"), command_of(config)
        if command is None or shard is None:
            raise UserError(f"{folder}: is no shard; give folders of notewriter pairs or chains with --shard i/n")
        if shard in shards:
            raise UserError(f"{folder}: is shard {shard}, and so is {shards[shard][0]}; give each once")
        shards[shard] = (folder, config)
    first, whole = next(iter(shards.values()))
    whole = whole | {"shard": None, "output_dir": str(output_dir)}
    contents: dict[str, str] = {}
    for folder, config in shards.values():
        if parse_shard(config["shard"])[1] != parse_shard(shard)[1]:
            raise UserError(f"{folder}: is shard {config['shard']}, which does not go with {shard}")
        if found := difference(config | {"shard": None}, whole):
            raise UserError(f"{folder}: has {found[0]}: {found[1]!r}, but {first} has {found[2]!r}; they do not fit")
        for setting, content in read_fingerprints(folder).items():
            if contents.setdefault(setting, content) != content:
                raise UserError(f"{folder}: had other contents of {setting} than another shard; they do not fit")
    count = parse_shard(shard)[1]
    for number in range(1, count + 1):
        if f"{number}/{count}" not in shards:
            raise UserError(f"shard {number}/{count} is missing; run it, and give its folder too")

    recipe = _arguments(command, whole)
    selection = clean_selection(recipe)
    digest = questions_digest(selection.questions)
    places = {question.id: place for place, question in enumerate(selection.questions)}
    streams = []
    for folder, config in shards.values():
        if read_questions_digest(folder) != digest:
            raise UserError(f"{folder}: was built from other questions than {recipe.path} holds now; they do not fit")
        own, journal = _arguments(command, config), folder / JOURNAL
        check_journal(journal, command.RECORD)
        members = shard_of(selection.questions, own.shard)
        if to_do := command.to_do(own, members, journal):
            raise UserError(f"{folder}: is not finished, {to_do} questions are left; run it again first")
        streams.append(finished(journal, members))
    with open_run(output_dir, whole, selection.questions) as merged:
        records = heapq.merge(*streams, key=lambda record: places[record["question_id"]])
        jsonl.write(merged / JOURNAL, records)
        jsonl.write_text(merged / SHARDS, [json.dumps({"shards": count}) + "\n"])
        summary: str = command.summary(command.finish(recipe, merged, selection, whole), merged)
        return summary


def command_of(config: dict[str, Any]) -> ModuleType | None:
    """The command that a configuration is one of, told by its options."""
    for command in (pairs, chains):
        if all(each.name in config for each in fields(command.Arguments)):
            return command
    return None


def _arguments(command: ModuleType, config: dict[str, Any]) -> Any:
    return command.Arguments(**{each.name: config[each.name] for each in fields(command.Arguments)})
