"""The files of a data set: Parquet that `datasets.load_dataset` reads, no question on both sides of the split."""

import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from notewriter.errors import writing
from notewriter.records import Question

JOURNAL = "rollouts.jsonl"
"""What the finished questions yielded, beside the data set that is written from it."""

SHARDS = "shards.json"
"""Of how many shards a data set was merged."""

SPLITS = ("train", "dev")


def dev_questions(questions: list[Question], share: float, seed: int | None) -> set[str]:
    """The ids of the questions that are kept for dev, so that no question stands on both sides."""
    ids = sorted(question.id for question in questions)
    return set(random.Random(f"{seed} dev").sample(ids, round(share * len(ids))))


def write_splits(
    folder: Path, columns: pa.Schema, rows: Callable[[], Iterable[dict[str, Any]]], dev: set[str]
) -> dict[str, int]:
    """Write train.parquet and, if it has rows, dev.parquet; returns the number of rows of each.

    `rows` is called once a file and gives all rows anew, so that they need not be in memory; those whose
    `question_id` is in `dev` are for dev.
    """
    counts = {}
    for name in SPLITS:
        members = (row for row in rows() if (row["question_id"] in dev) == (name == "dev"))
        counts[name] = write_rows(folder / f"{name}.parquet", columns, members)
    if counts["dev"] == 0:
        # `datasets` refuses a split without rows, and training a dev set without any.
        (folder / "dev.parquet").unlink()
    return counts


def write_rows(path: Path, columns: pa.Schema, rows: Iterable[dict[str, Any]], batch: int = 1000) -> int:
    """Write rows in batches; the file appears under its name when it is complete. Returns their number."""
    partial = path.with_name(path.name + ".partial")
    count = 0
    waiting: list[dict[str, Any]] = []
    with writing(path):
        try:
            with pq.ParquetWriter(partial, columns) as writer:
                for row in rows:
                    waiting.append(row)
                    count += 1
                    if len(waiting) == batch:
                        writer.write_table(pa.Table.from_pylist(waiting, schema=columns))
                        waiting.clear()
                writer.write_table(pa.Table.from_pylist(waiting, schema=columns))
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    return count
