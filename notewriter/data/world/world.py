"""`notewriter world`: generate a fictional world to try the pipeline on.

The folder gets train/ and test/, each with corpus.jsonl and questions.jsonl, and world.json with the settings.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.data.world.generation import generate
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.locks import locked
from notewriter.ground.options import option

SCHEMA = "notewriter/world/1"

MOST = 100_000
"""The maximum number of questions of a world, which is generated in memory."""


@dataclass
class WorldArguments:
    """The size of the worlds, and the output folder."""

    output_dir: str = option(
        "data/world", "the folder for train/ and test/, each with corpus.jsonl and questions.jsonl"
    )
    seed: int = option(7, "another seed generates another world with other names")
    train: Annotated[int, Interval(ge=1, le=MOST)] = option(
        300, "number of training questions, with about six passages each"
    )
    test: Annotated[int, Interval(ge=1, le=MOST)] = option(150, "number of test questions, about a separate world")
    hops: Annotated[list[Annotated[int, Interval(ge=1, le=3)]], MinLen(1)] = field(
        default_factory=lambda: [2, 3],
        metadata={"help": "number of passages that a question needs: 1, 2, 3, or several of them"},
    )


def main(argv: list[str]) -> None:
    """Generate a training and a test world."""
    (arguments,) = parse(WorldArguments, argv, prog="notewriter world", description=__doc__)
    sizes = {"train": arguments.train, "test": arguments.test}
    sys.stdout.write(write_worlds(Path(arguments.output_dir), arguments.seed, sizes, arguments.hops))


def write_worlds(folder: Path, seed: int, sizes: dict[str, int], hops: Sequence[int]) -> str:
    """Write one world per split, unless the folder already contains them.

    Returns:
        The summary for the terminal.

    Raises:
        UserError: the folder contains a world with other settings, or files that are not part of a world.
    """
    settings = {"schema": SCHEMA, "seed": seed, **sizes, "hops": hops}
    files = [folder / split / name for split in sizes for name in ("corpus.jsonl", "questions.jsonl")]
    settings_path = folder / "world.json"
    # The settings are written first and determine everything else, so an interrupted run can simply be repeated.
    if settings_path.exists():
        remedy = "remove it or choose another --output_dir"
        if jsonl.read_object(settings_path, dict[str, Any], remedy) != settings:
            raise UserError(f"{settings_path}: contains a world with other settings; choose another --output_dir")
        if all(path.exists() for path in files):
            return f"{folder}: this world already exists\n"
    elif present := [path for path in files if path.exists()]:
        raise UserError(f"{present[0]}: already exists and is not part of a world; choose another --output_dir")
    worlds = generate(seed, sizes, hops)
    with locked(folder):
        jsonl.write_text(settings_path, [json.dumps(settings, indent=2) + "\n"])
        for split, world in worlds.items():
            jsonl.write(folder / split / "corpus.jsonl", map(asdict, world.passages))
            jsonl.write(folder / split / "questions.jsonl", map(asdict, world.questions))
    counts = "; ".join(f"{s}: {len(w.questions)} questions, {len(w.passages)} passages" for s, w in worlds.items())
    return f"{folder}: wrote a world ({counts})\n"
