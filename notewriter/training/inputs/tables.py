"""Tables of comma- or tab-separated cells, whose values are the texts that stand in them."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.training.inputs.forms import NUMBERS

LONGEST = 2**31 - 1
"""Characters of a cell at most; Python's own limit is 131,072."""


def records(path: Path, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `(name, record)` for every row of a table, by the names in its first row; it may be `.gz`.

    The name is `line 5`, that of the row's first line, from 1. A value is the text of its cell; in the columns
    `forms.NUMBERS` it is the number or truth value that the text is, and null where it is empty.

    Raises:
        UserError: the file cannot be read, two columns have one name, or a row has another number of cells than the
            first; names file and line.
    """
    csv.field_size_limit(LONGEST)
    rows = csv.reader((line for _, line in jsonl.lines(path, newline="")), delimiter=delimiter, strict=True)
    line = 1
    try:
        # Pandas writes its index as a first column without a name.
        names = [name or f"column {number}" for number, name in enumerate(next(rows, []), start=1)]
        name, count = max(Counter(names).items(), key=lambda each: each[1], default=("", 0))
        if count > 1:
            raise UserError(f"{path}:{line}: has {count} columns of the name {name}; rename or remove one")
        if len(names) == 1 and re.search(r"[,;|\t]", names[0]):
            raise UserError(f"{path}:{line}: has only one column, {names[0]}; separate columns by {delimiter!r}")
        line = rows.line_num + 1
        for cells in rows:
            # An empty line has none.
            if cells and len(cells) != len(names):
                raise UserError(
                    f"{path}:{line}: has {len(cells)} cells, and the first row {len(names)}; quote cells that hold "
                    f"{delimiter!r}, quotation marks or line breaks"
                )
            if cells:
                yield f"line {line}", {name: _value(name, cell) for name, cell in zip(names, cells, strict=True)}
            line = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{line}: its quoting is malformed ({error}); quote the whole cell, and double the quotation marks "
            "in it"
        ) from error


def _value(name: str, cell: str) -> Any:
    if name not in NUMBERS:
        return cell
    try:
        return json.loads(cell.lower() or "null")
    except ValueError:
        return cell
