"""`notewriter split`: questions of a benchmark in two files, train.jsonl and dev.jsonl, that share none."""

import random
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from notewriter.datasets import BENCHMARKS, load_questions, question_file
from notewriter.datasets.questions import PATH, SPLIT
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_in
from notewriter.ground.releases import FETCHED


@dataclass
class SplitArguments:
    """Hold questions of a benchmark out for development.

    Writes train.jsonl and dev.jsonl, which other commands read with `--dataset jsonl --family NAME`; a file without
    questions is not written. The same file, numbers and seed give the same two files. Give dev.jsonl to
    `pairs --eval_files`, which leaves out training questions that nearly repeat one of it.
    """

    dataset: str = field(metadata={"help": f"the format of --path: {', '.join(BENCHMARKS)}", "names": names_in})
    output_dir: str = field(metadata={"help": "the folder of the two files"})
    dev: Annotated[int, Interval(ge=1)] = field(metadata={"help": "how many questions to hold out, drawn at random"})
    path: str = field(default=FETCHED, metadata=PATH)
    split: str | None = field(default=None, metadata=SPLIT)
    train: Annotated[int, Interval(ge=0)] | None = field(
        default=None, metadata={"help": "how many of the others to keep, drawn at random; default: all"}
    )
    seed: int = field(default=0, metadata={"help": "seed of the draw"})


def main(argv: list[str]) -> None:
    """Split a question file."""
    (arguments,) = parse(SplitArguments, argv, prog="notewriter split", description=SplitArguments.__doc__)
    arguments.path = question_file(arguments.dataset, arguments.path, arguments.split)
    folder = Path(arguments.output_dir)
    outputs = [folder / f"{split}.jsonl" for split in ("train", "dev")]
    if Path(arguments.path).resolve() in (path.resolve() for path in outputs):
        raise UserError(f"{arguments.path}: the split would replace this file; choose another --output_dir")
    questions = load_questions(arguments.dataset, arguments.path)
    kept = arguments.dev + (arguments.train or 0)
    if kept > len(questions):
        raise UserError(f"{arguments.path}: has {len(questions)} questions, not {kept}; lower --dev or --train")
    order = list(range(len(questions)))
    random.Random(f"{arguments.seed} split").shuffle(order)
    dev, others = order[: arguments.dev], order[arguments.dev :]
    counts = []
    for path, members in zip(outputs, (others[: arguments.train], dev), strict=True):
        if members:
            jsonl.write(path, (asdict(questions[index]) for index in sorted(members)))
        else:
            # One of an earlier split may have questions that are held out now.
            path.unlink(missing_ok=True)
        counts.append(f"{len(members)} questions in {path.name}")
    sys.stdout.write(f"{folder}: {', '.join(counts)}\n")
