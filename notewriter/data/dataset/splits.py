"""The splits of a dataset: train.parquet and dev.parquet, which share no question."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from notewriter.artifacts.parquet import RowWriter
from notewriter.ground.errors import UserError

SPLITS = ("train", "dev")


def split_files(folder: Path) -> list[Path]:
    """The files of a dataset: train.parquet and, if there is one, dev.parquet.

    Raises:
        UserError: there is no train.parquet.
    """
    if not (folder / "train.parquet").is_file():
        raise UserError(f"{folder}: has no train.parquet; give the folder that pairs, gold or chains were written to")
    return [path for split in SPLITS if (path := folder / f"{split}.parquet").is_file()]


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
