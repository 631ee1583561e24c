"""NAME.jsonl in a folder of labels: a person's choices between two texts, a line as each is made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from notewriter.artifacts.reading import read_record, record_of
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

HAND_LABEL_SCHEMA = "notewriter/hand-label/1"

Preference = Literal["left", "right", "neither"]

PREFERENCES: tuple[Preference, ...] = get_args(Preference)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandLabel:
    """A person's judgement on two texts.

    Args:
        item: identifies the two texts and their prompt (`notewriter.data.by_hand.items`).
        judge: the person's name.
        question_id: the question.
        stage: the stage that wrote the texts, or `note` for the final notes of two runs.
        dataset: the benchmark; empty where it is unknown.
        left: the text that was shown on the left.
        right: the text that was shown on the right.
        preferred: the side that is better, or `neither`.
        seconds: from when the two were shown to the answer.
    """

    item: str
    judge: str
    question_id: str
    stage: str
    dataset: str
    left: str
    right: str
    preferred: Preference
    seconds: float

    @property
    def text(self) -> str | None:
        """The preferred text; None for neither."""
        return {"left": self.left, "right": self.right, "neither": None}[self.preferred]

    def to_dict(self) -> dict[str, Any]:
        """The line in the file, with its schema."""
        return record_of(self, HAND_LABEL_SCHEMA)


def read_hand_labels(path: Path) -> dict[str, HandLabel]:
    """One person's labels by item; the last one of an item counts, and a partial last line does not.

    Raises:
        UserError: a line is not a label, or is another person's than the first; names file and line.
    """
    labels: dict[str, HandLabel] = {}
    for number, record in jsonl.read(path, journal=True):
        label = read_record(record, HandLabel, HAND_LABEL_SCHEMA, f"{path}:{number}", "remove the line")
        first = next(iter(labels.values()), label)
        if label.judge != first.judge:
            raise UserError(
                f"{path}:{number}: is a label of {label.judge}, and those before it are of {first.judge}; move each "
                "person's labels into a file of their own"
            )
        labels[label.item] = label
    return labels


def read_labels_folder(folder: Path) -> dict[str, dict[str, HandLabel]]:
    """Person -> item -> label, for all files of a folder of labels.

    Raises:
        UserError: the folder has none, two files are of one person, or a line is not a label.
    """
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise UserError(f"{folder}: has no labels; `notewriter app --pairs FOLDER --judge_name NAME` collects them")
    people = {path.stem: read_hand_labels(path) for path in paths}
    files: dict[str, Path] = {}
    for path in paths:
        for judge in {label.judge for label in people[path.stem].values()}:
            if (other := files.setdefault(judge, path)) != path:
                raise UserError(
                    f"{path}: has labels of {judge}, as {other} has, who would count as two people; move one of the "
                    "files elsewhere, or append it to the other"
                )
    return people
