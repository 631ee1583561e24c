"""The splits of a dataset: train.parquet and dev.parquet, which share no question."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from notewriter.artifacts.parquet import new_rows
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


def write_splits(
    folder: Path, columns: pa.Schema, rows: Iterable[Mapping[str, Any]], dev_ids: Collection[str]
) -> dict[str, int]:
    """Write each row to the split of its `question_id`, one in memory at a time; returns the rows per split.

    Both files appear when all rows are written; dev.parquet does not where it would be empty.

    Raises:
        UserError: a file cannot be written.
    """
    path = folder / "dev.parquet"
    with new_rows(folder / "train.parquet", columns) as train, new_rows(path, columns) as dev:
        for row in rows:
            (dev if row["question_id"] in dev_ids else train).write(row)
    if dev.count == 0:
        # `datasets` refuses a split without rows, and so does training.
        path.unlink()
    return {"train": train.count, "dev": dev.count}
