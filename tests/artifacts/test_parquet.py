"""Parquet files: damaged ones, and what reading leaves behind."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

from notewriter.artifacts.parquet import read_rows, read_schema
from notewriter.ground.errors import UserError
from notewriter.training.inputs import conversations, pairs, rows

ROW = {
    "prompt": [{"role": "user", "content": "Who built it?"}],
    "chosen": [{"role": "assistant", "content": "Mira."}],
    "rejected": [{"role": "assistant", "content": "Osk."}],
    "stage": "vanilla/answer",
    "question_id": "q",
}


def consume(path):
    """Read a file in every way in which one is read."""
    read_schema(path)
    rows.columns(path)
    list(read_rows(path))
    pairs.read(path)
    conversations.read(path)


@pytest.fixture
def path(tmp_path):
    table = pa.Table.from_pylist([ROW | {"question_id": f"q{number}"} for number in range(20)])
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    consume(tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


def test_columns_of_one_name_are_refused(tmp_path):
    table = pa.table([["q1"], ["q2"]], names=["id", "id"])
    pyarrow.parquet.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(UserError, match=r"twice.parquet: has several columns of the name id; rename or remove one"):
        list(read_rows(tmp_path / "twice.parquet"))


def test_a_changed_byte_anywhere_is_no_traceback(path):
    whole = path.read_bytes()
    named = 0
    for position in range(0, len(whole), 61):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            consume(path)
        except UserError as error:
            named += 1
            assert str(error).startswith(f"{path}: ")
    assert named


def test_a_cut_file_is_no_traceback(path):
    whole = path.read_bytes()
    for size in range(0, len(whole), 101):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="is not a readable Parquet file"):
            consume(path)


@pytest.mark.parametrize("read", [lambda path: list(read_rows(path, batch=2)), pairs.read, conversations.read])
def test_text_that_is_no_utf_8_is_named_with_its_rows(path, read):
    table = pyarrow.parquet.read_table(path)
    column = pa.array([b"q"] * 19 + [b"\xff"]).view(pa.string())
    pyarrow.parquet.write_table(table.set_column(table.column_names.index("question_id"), "question_id", column), path)
    with pytest.raises(UserError, match=r"train\.parquet: rows \d+ to 19 are damaged .*utf-8"):
        read(path)


READ = """
import sys
from pathlib import Path
import psutil
from notewriter.artifacts.parquet import read_rows

before = psutil.Process().num_threads()
assert list(read_rows(Path(sys.argv[1])))
print(psutil.Process().num_threads() - before)
"""


def test_reading_leaves_no_thread_that_could_abort_the_end_of_a_process(path):
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
