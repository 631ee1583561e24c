"""`notewriter split`: questions in two files, train.jsonl and dev.jsonl, that share none."""

import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from notewriter.datasets import BENCHMARKS, load_questions, own_evidence, question_file, reading
from notewriter.datasets.questions import PATH, SPLIT
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_in, option
from notewriter.ground.records import Question
from notewriter.ground.releases import FETCHED


@dataclass
class HoldOutArguments:
    """Hold questions of a benchmark out for development.

    Writes train.jsonl and dev.jsonl, which other commands read with `--dataset jsonl --family NAME`; a file without
    questions is not written. The same file, numbers and seed give the same two files. Give dev.jsonl to
    `pairs --eval_files`, which leaves out training questions that nearly repeat one of it.

    With `--corpus` the questions are checked against it first: how many have evidence, how many of their supporting
    facts and answers occur in it, and which are asked twice, with the numbers of their lines. Then no document holds
    evidence of both files, and facts are written as the corpus spaces and points them.

    `--beside` adds questions to train.jsonl, such as those of `notewriter cloze`; none of them is held out.
    """

    dataset: str = field(
        metadata={"help": f"the format of --path: {', '.join(BENCHMARKS)}", "plugins": BENCHMARKS, "names": names_in}
    )
    output_dir: str = field(metadata={"help": "the folder for train.jsonl and dev.jsonl"})
    dev: Annotated[int, Interval(ge=1)] | None = option(
        None, "number of questions to hold out, drawn at random; with --corpus a maximum"
    )
    dev_share: Annotated[float, Interval(gt=0, lt=1)] | None = option(
        None, "the share of the questions to hold out, instead of --dev"
    )
    corpus: str | None = option(
        None, "the corpus.jsonl with the questions' evidence: check the questions against it, and hold out by document"
    )
    path: str = field(default=FETCHED, metadata=PATH)
    split: str | None = field(default=None, metadata=SPLIT)
    train: Annotated[int, Interval(ge=0)] | None = option(
        None, "number of the other questions to keep for training, drawn at random; default: all"
    )
    beside: str | None = option(
        None,
        "a JSON Lines file of further training questions; those that are asked in --path too, or share evidence with "
        "held-out questions, are left out",
    )
    seed: int = option(0, "seed of the draw")


def main(argv: list[str]) -> None:
    """Split a question file."""
    (arguments,) = parse(HoldOutArguments, argv, prog="notewriter split", description=HoldOutArguments.__doc__)
    arguments.path = question_file(arguments.dataset, arguments.path, arguments.split)
    folder = Path(arguments.output_dir)
    outputs = [folder / f"{split}.jsonl" for split in ("train", "dev")]
    if Path(arguments.path).resolve() in (path.resolve() for path in outputs):
        raise UserError(f"{arguments.path}: the split would replace this file; choose another --output_dir")
    questions = load_questions(arguments.dataset, arguments.path)
    if (arguments.dev is None) == (arguments.dev_share is None):
        raise UserError("give --dev, the number of questions to hold out, or --dev_share, their share")
    held = arguments.dev or max(1, round((arguments.dev_share or 0) * len(questions)))
    kept = held + (arguments.train or 0)
    if kept > len(questions):
        raise UserError(f"{arguments.path}: has {len(questions)} questions, not {kept}; lower --dev or --train")
    order, by = list(range(len(questions))), "drawn by question"
    random.Random(f"{arguments.seed} split").shuffle(order)
    if arguments.corpus:
        evidence = own_evidence.find(Path(arguments.corpus), questions)
        sys.stdout.writelines(
            f"{line}\n"
            for line in own_evidence.check(questions, _places(arguments.path, questions), evidence, arguments.path)
        )
        if not (evidence.found or evidence.documents):
            raise UserError(
                f"{arguments.path}: no question has evidence that {arguments.corpus} holds; copy sentences of it into "
                "`supporting_facts`, or make questions of it with notewriter cloze"
            )
        parts, apart = own_evidence.hold_out(questions, evidence, order, held)
        order.sort(key=lambda index: index not in parts)
        held = len(parts)
        questions = [evidence.in_its_words(question) for question in questions]
        by = "no document holds evidence of both" if apart else "by question: one document holds evidence of nearly all"
    dev, others = order[:held], order[held:]
    parts_of = [[questions[index] for index in sorted(members)] for members in (others[: arguments.train], dev)]
    if arguments.beside:
        parts_of[0] += _beside(arguments.beside, questions, parts_of[1])
    counts = []
    for path, members in zip(outputs, parts_of, strict=True):
        if members:
            jsonl.write(path, map(asdict, members))
        else:
            # One of an earlier split may have questions that are held out now.
            path.unlink(missing_ok=True)
        counts.append(f"{len(members)} questions in {path.name}")
    sys.stdout.write(f"{folder}: {', '.join(counts)}; {by}\n")


def _beside(path: str, questions: Sequence[Question], held: Sequence[Question]) -> list[Question]:
    """The questions of another file that neither are among these nor share evidence with those that are held out."""
    asked = {own_evidence.as_asked(each) for each in questions}
    # The passages of a question with facts have other sentences to ask about.
    known = {one for each in held for one in each.supporting_facts or each.supporting_ids}
    taken = {each.id for each in questions}
    further = [
        each
        for each in load_questions("jsonl", path)
        if own_evidence.as_asked(each) not in asked and known.isdisjoint(each.supporting_facts + each.supporting_ids)
    ]
    if twice := [each.id for each in further if each.id in taken]:
        raise UserError(f"{path}: question {twice[0]} has the id of another one in --path; rename it")
    return further


def _places(path: str, questions: Sequence[Question]) -> dict[str, str]:
    """The line or row of each question by its id, or the id where the records are others, such as IIRC's articles."""
    ids, file = [question.id for question in questions], Path(path)
    try:
        rows = [place.removeprefix(str(file)).lstrip(": ") for place, _ in reading.records(file)]
    except UserError:
        # One object has all questions, as in TriviaQA's own files.
        rows = []
    return dict(zip(ids, rows if len(rows) == len(ids) else [f"question {id}" for id in ids], strict=True))
