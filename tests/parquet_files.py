"""Parquet files of rows, as commands write them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from notewriter.artifacts.parquet import BATCH, new_rows


def write_rows(path: Path, columns: pa.Schema, rows: Iterable[Mapping[str, Any]], batch: int = BATCH) -> int:
    """Write a file of rows; returns their number."""
    with new_rows(path, columns, batch) as writer:
        for row in rows:
            writer.write(row)
    return writer.count
