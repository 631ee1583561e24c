"""`notewriter merge-shards`: one dataset of pairs or chains that were built in shards (`--shard i/n`).

The result is byte for byte what a single run over all questions writes, except for pairs with quotas. A stage that has
its quota is no longer sampled, and a shard only knows its own pairs, so each shard samples until it has its n-th part.
Together they have as many pairs, mostly from the same questions; stats.json and the card say that the quotas were kept
in shards. If a shard runs out of questions before it has its part, a stage can end below its quota: `notewriter pairs`
without --shard, with the merged folder as output_dir, then resumes until the stage has it.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen

from notewriter.data.dataset.merging import merge
from notewriter.ground.config import command_line, parse


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
