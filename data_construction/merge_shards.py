"""`notewriter merge-shards`: one dataset of pairs that were built in shards (`notewriter pairs --shard i/n`)."""

import heapq
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from data_construction import pairs
from notewriter import jsonl
from notewriter.config import parse
from notewriter.errors import UserError
from notewriter.runs import difference, finished, open_run, parse_shard, questions_digest, read_config, shard_of


@dataclass
class Arguments:
    """Which shards, and where to."""

    shards: list[str] = field(metadata={"help": "the output folders of all shards, in any order"})
    output_dir: str = field(metadata={"help": "gets the folder that a run without shards would have made"})


def main(argv: list[str]) -> None:
    """Merge shards that fit."""
    (arguments,) = parse(Arguments, argv, prog="notewriter merge-shards", description=__doc__)
    stats = merge([Path(shard) for shard in arguments.shards], Path(arguments.output_dir))
    sys.stdout.write(pairs.summary(stats, Path(arguments.output_dir)))


def merge(folders: Sequence[Path], output_dir: Path) -> dict[str, Any]:
    """Write what a run without shards would have: the journal, the pairs, stats.json; returns the statistics.

    Only one question at a time is in memory.

    Raises:
        UserError: a folder is no shard, a shard is missing, given twice or not finished, or shards differ in a
            setting or in their questions.
    """
    shards = {}
    for folder in folders:
        config = read_config(folder)
        shard = config.get("shard")
        if "stages" not in config or shard is None:
            raise UserError(f"{folder}: is no shard of pairs; give folders of notewriter pairs --shard i/n")
        if shard in shards:
            raise UserError(f"{folder}: is shard {shard}, and so is {shards[shard][0]}; give each once")
        shards[shard] = (folder, config)
    first, whole = next(iter(shards.values()))
    whole = whole | {"shard": None, "output_dir": str(output_dir)}
    for folder, config in shards.values():
        if parse_shard(config["shard"])[1] != parse_shard(shard)[1]:
            raise UserError(f"{folder}: is shard {config['shard']}, which does not go with {shard}")
        if found := difference(config | {"shard": None}, whole):
            raise UserError(f"{folder}: has {found[0]}: {found[1]!r}, but {first} has {found[2]!r}; they do not fit")
    count = parse_shard(shard)[1]
    for number in range(1, count + 1):
        if f"{number}/{count}" not in shards:
            raise UserError(f"shard {number}/{count} is missing; run it, and give its folder too")

    recipe = _arguments(whole)
    questions, drops, evaluation = pairs.clean_selection(recipe)
    digest = questions_digest(questions)
    places = {question.id: place for place, question in enumerate(questions)}
    streams = []
    for folder, config in shards.values():
        if (folder / "questions.sha256").read_text(encoding="utf-8").strip() != digest:
            raise UserError(f"{folder}: was built from other questions than {recipe.path} holds now; they do not fit")
        own, journal = _arguments(config), folder / "rollouts.jsonl"
        members = shard_of(questions, own.shard)
        if to_do := pairs.quotas_of(own, members, journal).to_do():
            raise UserError(f"{folder}: is not finished, {to_do} questions are left; run it again first")
        streams.append(finished(journal, members))
    with open_run(output_dir, whole, questions) as merged:
        records = heapq.merge(*streams, key=lambda record: places[record["question_id"]])
        jsonl.write(merged / "rollouts.jsonl", records)
        return pairs.finish(recipe, merged, questions, drops, evaluation, whole)


def _arguments(config: dict[str, Any]) -> pairs.Arguments:
    return pairs.Arguments(**{each.name: config[each.name] for each in fields(pairs.Arguments)})
