"""The pairs on disk: Parquet that `datasets.load_dataset` reads, in TRL's conversational preference format."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "notewriter/pair/1"

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_SOURCE = pa.struct(
    [("kind", pa.string()), ("temperature", pa.float64()), ("top_p", pa.float64()), ("max_tokens", pa.int64())]
)
COLUMNS = pa.schema(
    [
        ("schema", pa.string()),
        ("prompt", _MESSAGES),
        ("chosen", _MESSAGES),
        ("rejected", _MESSAGES),
        ("stage", pa.string()),
        ("method", pa.string()),
        ("question_id", pa.string()),
        ("dataset", pa.string()),
        ("top_k", pa.int64()),
        # Where each side comes from: drawn from the model with a sampling, or the gold answer.
        ("chosen_source", _SOURCE),
        ("rejected_source", _SOURCE),
        ("chosen_score", pa.float64()),
        ("rejected_score", pa.float64()),
        ("judge", pa.string()),
        ("judge_replies", pa.list_(pa.string())),
        # As the teacher's server counted them; empty for the gold answer.
        ("prompt_tokens", pa.int64()),
        ("chosen_tokens", pa.int64()),
        ("rejected_tokens", pa.int64()),
    ]
)


def write_pairs(path: Path, rows: Iterable[dict[str, Any]], batch: int = 1000) -> int:
    """Write pairs in batches; the file appears under its name when it is complete. Returns the number of rows."""
    partial = path.with_name(path.name + ".partial")
    count = 0
    waiting: list[dict[str, Any]] = []
    with pq.ParquetWriter(partial, COLUMNS) as writer:
        for row in rows:
            waiting.append(row)
            count += 1
            if len(waiting) == batch:
                writer.write_table(pa.Table.from_pylist(waiting, schema=COLUMNS))
                waiting.clear()
        writer.write_table(pa.Table.from_pylist(waiting, schema=COLUMNS))
    os.replace(partial, path)
    return count
