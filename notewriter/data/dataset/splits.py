"""The splits of a dataset: train.parquet and dev.parquet, which share no question."""

import contextlib
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from notewriter.artifacts.parquet import RowWriter
from notewriter.ground.records import Question

SPLITS = ("train", "dev")


def dev_questions(questions: Sequence[Question], share: float, seed: int | None) -> set[str]:
    """The ids of a random share of the questions, whose rows go to dev."""
    ids = sorted(question.id for question in questions)
    return set(random.Random(f"{seed} dev").sample(ids, round(share * len(ids))))


class SplitWriter:
    """Sends each row to the file of its split."""

    def __init__(self, train: RowWriter, dev: RowWriter, dev_ids: Collection[str]) -> None:
        self._train, self._dev, self._dev_ids = train, dev, dev_ids

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row to the split of its `question_id`."""
        (self._dev if row["question_id"] in self._dev_ids else self._train).write(row)

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows per split."""
        return {"train": self._train.count, "dev": self._dev.count}


@contextlib.contextmanager
def open_splits(folder: Path, columns: pa.Schema, dev_ids: Collection[str]) -> Iterator[SplitWriter]:
    """Write train.parquet and, unless it stays empty, dev.parquet; both appear when the block ends without an error.

    Raises:
        UserError: a file cannot be written.
    """
    path = folder / "dev.parquet"
    with RowWriter(folder / "train.parquet", columns) as train, RowWriter(path, columns) as dev:
        yield SplitWriter(train, dev, dev_ids)
    if dev.count == 0:
        # `datasets` refuses a split without rows, and so does training.
        path.unlink()
