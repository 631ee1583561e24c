"""Reading and writing Parquet files in batches, so that a dataset never has to fit into memory; reading Arrow's too."""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import pyarrow as pa
import pyarrow.parquet as pq

from notewriter.ground import typed
from notewriter.ground.errors import UserError, one_line, writing

R = TypeVar("R")

BATCH = 1000
"""Rows in memory."""

_UNREADABLE = (OSError, ValueError, OverflowError, pa.ArrowException)
"""The errors of damaged pages, of strings that are not UTF-8, and of impossible dates."""


def columns_of(row: Any, *names: str) -> pa.Schema:
    """The columns of a file whose rows are of a TypedDict: those with these names, or else all, in its order."""
    hints = get_type_hints(row)
    return pa.schema([(name, _column(hints[name])) for name in names or hints])


def _column(hint: Any) -> pa.DataType:
    parts = [part for part in get_args(hint) if part is not NoneType]
    if get_origin(hint) is UnionType:
        return _column(parts[0])
    if get_origin(hint) is list:
        return pa.list_(_column(parts[0]))
    if is_typeddict(hint):
        return pa.struct(list(columns_of(hint)))
    return {str: pa.string(), int: pa.int64(), float: pa.float64()}[hint]


class RowWriter:
    """The rows of a Parquet file that is being written; `count` is their number."""

    def __init__(self, file: pq.ParquetWriter, columns: pa.Schema, batch: int) -> None:
        self.count = 0
        self._file, self._columns, self._batch = file, columns, batch
        self._waiting: list[Mapping[str, Any]] = []

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row; columns that it lacks are null."""
        self.count += 1
        self._waiting.append(row)
        if len(self._waiting) == self._batch:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait for a whole batch."""
        self._file.write_table(pa.Table.from_pylist(self._waiting, schema=self._columns))
        self._waiting.clear()


@contextmanager
def new_rows(path: Path, columns: pa.Schema, batch: int = BATCH, **options: Any) -> Iterator[RowWriter]:
    """A Parquet file that is written row by row and appears under its name when the block ends without an error.

    `options` are further ones of pyarrow's writer.

    Raises:
        UserError: the file cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        try:
            with pq.ParquetWriter(partial, columns, **options) as file:
                rows = RowWriter(file, columns, batch)
                yield rows
                rows.flush()
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def read_rows(
    path: Path, required: Sequence[str] = (), batch: int = BATCH, columns: Sequence[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Stream the rows of a Parquet file, `batch` rows in memory.

    A column of Arrow's type JSON, which `datasets` makes of values of several kinds, has the values of its texts; a map
    is an object.

    Args:
        path: the file.
        required: columns that it must have.
        batch: rows in memory.
        columns: columns to read; None reads all.

    Raises:
        UserError: the file is not Parquet, lacks a required column, or is damaged; names the rows that cannot be read.
    """
    with opened(path) as file:
        if missing := [column for column in required if column not in file.schema_arrow.names]:
            raise UserError(f"{path}: lacks the column(s) {', '.join(missing)}; give a file of the right kind")
        first = 0
        try:
            for rows in file.iter_batches(batch, columns=columns, use_threads=False):
                yield from _values(rows)
                first += len(rows)
        # A KeyError is a map with a key twice.
        except (*_UNREADABLE, KeyError) as error:
            last = min(first + batch, file.metadata.num_rows) - 1
            raise UserError(
                f"{path}: rows {first} to {last} are damaged ({one_line(error)}); write or download it again"
            ) from error


def read_arrow(path: Path) -> Iterator[dict[str, Any]]:
    """Stream the rows of an Arrow file, with values as `read_rows` has them.

    It is one that can be read at any place, such as Feather's, or a stream, as `datasets` writes it.

    Raises:
        UserError: the file is neither, or is damaged.
    """
    try:
        with pa.OSFile(str(path)) as source:
            try:
                file = pa.ipc.open_file(source)
                batches = map(file.get_batch, range(file.num_record_batches))
            except pa.ArrowInvalid:
                source.seek(0)
                batches = pa.ipc.open_stream(source)
            for rows in batches:
                for first in range(0, len(rows), BATCH):
                    yield from _values(rows.slice(first, BATCH))
    # A KeyError is a map with a key twice.
    except (*_UNREADABLE, KeyError) as error:
        raise UserError(
            f"{path}: is not a readable Arrow file ({one_line(error)}); write or download it again"
        ) from error


def _values(rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    decoders = {each.name: decode for each in rows.schema if (decode := _decoder(each.type))}
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        yield row | {name: decode(row[name]) for name, decode in decoders.items()}


def _decoder(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that parses the JSON at any depth of a type's values; None for a type without JSON."""
    if isinstance(kind, pa.JsonType):
        return lambda text: None if text is None else json.loads(text)
    if pa.types.is_struct(kind):
        fields = {each.name: decode for each in kind if (decode := _decoder(each.type))}
        if not fields:
            return None
        return lambda value: value and value | {name: decode(value[name]) for name, decode in fields.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if (item := _decoder(kind.value_type)) is None:
            return None
        return lambda values: values and [item(value) for value in values]
    return None


def read_checked(path: Path, row: type[R], batch: int = BATCH, columns: Sequence[str] | None = None) -> Iterator[R]:
    """Stream the rows of a Parquet file, of a TypedDict; `columns` are those that are read, by default all.

    Raises:
        UserError: as `read_rows`, or a row has another type in a column; names file, row (from 0) and column.
    """
    required: frozenset[str] = getattr(row, "__required_keys__")  # noqa: B009
    for number, values in enumerate(read_rows(path, sorted(required), batch, columns)):
        yield typed.read(values, row, f"{path}: row {number}", "fix or remove the row")


def read_schema(path: Path) -> pa.Schema:
    """The columns of a Parquet file, with its metadata.

    Raises:
        UserError: the file is not Parquet.
    """
    with opened(path) as file:
        return file.schema_arrow


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet does, whatever its name is; one that cannot be read does not."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(4) == b"PAR1"
    return False


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file, with every fault of its contents as an error of the file.

    Raises:
        UserError: the file is not Parquet, or is damaged.
    """
    try:
        # Arrow's threads outlive what they read, and now and then abort a process that ends (apache/arrow#34314): a
        # training whose model is saved would count as failed. So nothing is read ahead, and batches are read without.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            if twice := [name for name, times in Counter(file.schema_arrow.names).items() if times > 1]:
                raise UserError(f"{path}: has several columns of the name {twice[0]}; rename or remove one")
            yield file
    except _UNREADABLE as error:
        reason = one_line(error)
        raise UserError(f"{path}: is not a readable Parquet file ({reason}); write or download it again") from error
