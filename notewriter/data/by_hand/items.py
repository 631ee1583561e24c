"""The items for people to judge: two texts for one prompt, of pairs or of two runs' notes, in a random order."""

import hashlib
import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.pairs import SIDES, Pair, read_pairs
from notewriter.artifacts.predictions import Prediction, read_predictions
from notewriter.data.dataset.splits import split_files
from notewriter.evaluation.catalogue import metric_named
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.records import Message

NOTE = "note"
"""The stage of items that are the final notes of two runs."""

_QUESTION = re.compile(r"^\s*Question:\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)


@dataclass
class ByHandArguments:
    """The source of the items to judge by hand."""

    pairs: list[str] | None = option(
        None,
        "folders of pairs; a pair that several judges labelled in folders of their own is shown once, "
        "and each judge is compared with the person",
    )
    runs: list[str] | None = option(None, "two run folders over the same questions, whose notes are compared")
    labels: str = option("runs/labels", "folder of people's answers, NAME.jsonl for each of them")


@dataclass
class SampleArguments:
    """The choice of items, and their order."""

    most: Annotated[int, Interval(ge=1)] = option(
        200, "maximum number of items to judge, drawn at random; the same ones for every person"
    )
    seed: int = option(0, "seed of the draw, the order and the sides")


@dataclass(frozen=True, slots=True)
class Item:
    """Two texts to choose from.

    Args:
        id: of the texts and their prompt, whoever labelled them.
        question_id: the question.
        stage: the stage that wrote them, or `NOTE`.
        dataset: the benchmark; empty where it is unknown.
        context: the text that a person reads first: the prompt, or the question with its gold answers.
        question: the question's text; empty where the prompt does not have it after the word `Question:`.
        texts: both texts, in an order without meaning.
        preferred: automatic judge -> the index of the text that it preferred.
        pair: the row that the item was made from; None for notes of two runs.
        split: of the row.
    """

    id: str
    question_id: str
    stage: str
    dataset: str
    context: list[Message]
    question: str
    texts: tuple[str, str]
    preferred: dict[str, int]
    pair: Pair | None = None
    split: str = "train"


def sample(arguments: ByHandArguments, draw: SampleArguments) -> list[Item]:
    """The items to judge, in the order that everybody sees.

    Raises:
        UserError: nothing was named, files cannot be read, or there is nothing to choose from.
    """

    def rank(item: str) -> bytes:
        return _digest(draw.seed, item)

    # The texts of all would not always fit into memory.
    drawn = set(heapq.nsmallest(draw.most, {item.id for item in _all_items(arguments)}, key=rank))
    items = items_of(arguments, drawn.__contains__)
    if not items:
        raise UserError(
            "there is nothing to judge: the notes of the two runs do not differ for any question; give two other runs"
        )
    return sorted(items.values(), key=lambda item: rank(item.id))


def items_of(arguments: ByHandArguments, wanted: Callable[[str], bool]) -> dict[str, Item]:
    """The wanted items by id; one that several judges labelled is a single item.

    Raises:
        UserError: nothing was named, or files cannot be read.
    """
    items: dict[str, Item] = {}
    for item in _all_items(arguments):
        if wanted(item.id):
            items.setdefault(item.id, item).preferred.update(item.preferred)
    return items


def left_index(item: Item, seed: int, judge: str) -> int:
    """The index (0 or 1) of an item's text on the left."""
    return _digest(seed, judge, item.id)[0] % 2


def _all_items(arguments: ByHandArguments) -> Iterator[Item]:
    if not (arguments.pairs or arguments.runs):
        raise UserError("nothing to judge: give --pairs FOLDER, or --runs BEFORE AFTER")
    folders = [Path(name) for name in arguments.pairs or ()]
    names = [folder.name for folder in folders]
    for folder in folders:
        shown = folder.name if names.count(folder.name) == 1 else folder
        yield from _items_of_pairs(folder, f" ({shown})" if len(folders) > 1 else "")
    if arguments.runs:
        if len(arguments.runs) != 2:
            raise UserError(f"runs: {len(arguments.runs)} given; give two, such as --runs runs/before runs/after")
        yield from _items_of_runs(*map(Path, arguments.runs))


def _items_of_pairs(folder: Path, suffix: str) -> Iterator[Item]:
    """`suffix` tells the judge of this folder from the one of the same name in another."""
    for path in split_files(folder):
        for pair in read_pairs(path):
            chosen, rejected = (pair[side][-1]["content"] for side in SIDES)  # type: ignore[literal-required]
            texts = _ordered(chosen, rejected)
            yield Item(
                id=_identity(pair["prompt"], texts),
                question_id=pair["question_id"],
                stage=pair["stage"],
                dataset=pair.get("dataset") or "",
                context=pair["prompt"],
                question=asked[-1] if (asked := _QUESTION.findall(pair["prompt"][-1]["content"])) else "",
                texts=texts,
                preferred={f"{pair.get('judge') or 'unknown judge'}{suffix}": texts.index(chosen)},
                pair=pair,
                split=path.stem,
            )


def _items_of_runs(before: Path, after: Path) -> Iterator[Item]:
    """The questions whose notes differ; scores stand in for judges, and so does each run, which prefers its own."""
    runs = {path: read_predictions(path / "predictions.jsonl") for path in (before, after)}
    dataset = read_metrics(before / "metrics.json").dataset
    for identifier, first in runs[before].items():
        second = runs[after].get(identifier)
        if second is None or second.question != first.question:
            continue
        if not (first.note and second.note) or first.note == second.note:
            continue
        texts = _ordered(first.note, second.note)
        context: list[Message] = [
            {"role": "question", "content": first.question},
            {"role": "gold answers", "content": "\n".join(first.answers)},
        ]
        yield Item(
            id=_identity(context, texts),
            question_id=identifier,
            stage=NOTE,
            dataset=dataset,
            context=context,
            question=first.question,
            texts=texts,
            preferred={judge: texts.index(note) for judge, note in _preferred_notes(before, first, after, second)},
        )


def _preferred_notes(before: Path, first: Prediction, after: Path, second: Prediction) -> Iterator[tuple[str, str]]:
    yield f"always {before}", first.note
    yield f"always {after}", second.note
    for name in first.scores.keys() & second.scores.keys():
        better = metric_named(name).better
        gain = second.scores[name] - first.scores[name]
        if better and gain:
            yield name, second.note if (gain > 0) == (better == "higher") else first.note


def _ordered(*texts: str) -> tuple[str, str]:
    first, second = sorted(texts, key=_digest)
    return first, second


def _identity(context: Iterable[Message], texts: tuple[str, str]) -> str:
    return _digest(json.dumps([list(context), texts])).hex()[:24]


def _digest(*parts: object) -> bytes:
    return hashlib.sha256(":".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
