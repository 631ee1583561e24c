"""`notewriter world`: generate a fictional world to try the pipeline on."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MinLen

from notewriter.data.world.files import write_worlds
from notewriter.ground.config import parse

MOST = 100_000
"""The maximum number of questions of a world, which is generated in memory."""


@dataclass
class WorldArguments:
    """The size of the worlds, and the output folder."""

    output_dir: str = field(
        default="data/world",
        metadata={"help": "the folder for train/ and test/, each with corpus.jsonl and questions.jsonl"},
    )
    seed: int = field(default=7, metadata={"help": "another seed generates another world with other names"})
    train: Annotated[int, Interval(ge=1, le=MOST)] = field(
        default=300, metadata={"help": "number of training questions, with about six passages each"}
    )
    test: Annotated[int, Interval(ge=1, le=MOST)] = field(
        default=150, metadata={"help": "number of test questions, about a separate world"}
    )
    hops: Annotated[list[Annotated[int, Interval(ge=2, le=3)]], MinLen(1)] = field(
        default_factory=lambda: [2, 3], metadata={"help": "number of passages that a question needs: 2, 3, or both"}
    )


def main(argv: list[str]) -> None:
    """Generate a training and a test world."""
    (arguments,) = parse(WorldArguments, argv, prog="notewriter world", description=__doc__)
    sizes = {"train": arguments.train, "test": arguments.test}
    sys.stdout.write(write_worlds(Path(arguments.output_dir), arguments.seed, sizes, arguments.hops))
