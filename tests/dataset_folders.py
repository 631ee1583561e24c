"""Folders of pairs and chains with few columns, for the pages that show them."""

import pyarrow
import pyarrow.parquet

HOSTILE = '</script><script>alert(1)</script><!-- <img src="https://example.org/x">'


def write(folder, rows, split="train"):
    folder.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{split}.parquet")
    return folder
