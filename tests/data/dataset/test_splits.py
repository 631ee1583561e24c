import pyarrow.parquet
import pytest
from pair_rows import row

from notewriter.artifacts.pairs import COLUMNS
from notewriter.data.dataset.selection import dev_questions
from notewriter.data.dataset.splits import write_splits
from notewriter.ground.records import Question

QUESTIONS = [Question(f"q{number}", "Where?", ("Tolen",)) for number in range(10)]


def ids(path):
    return pyarrow.parquet.read_table(path)["question_id"].to_pylist()


def test_each_question_is_in_one_split_and_rows_keep_their_order(tmp_path):
    dev = dev_questions(QUESTIONS, 0.3, 0)
    assert dev == dev_questions(QUESTIONS[::-1], 0.3, 0) and len(dev) == 3
    assert write_splits(tmp_path, COLUMNS, map(row, range(10)), dev) == {"train": 7, "dev": 3}
    assert ids(tmp_path / "dev.parquet") == [f"q{number}" for number in range(10) if f"q{number}" in dev]
    assert ids(tmp_path / "train.parquet") == [f"q{number}" for number in range(10) if f"q{number}" not in dev]


def test_a_dev_split_without_rows_is_removed(tmp_path):
    (tmp_path / "dev.parquet").write_text("of an earlier run")
    write_splits(tmp_path, COLUMNS, [row(0)], set())
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]


def test_an_error_leaves_both_files_as_they_were(tmp_path):
    for split in ("train", "dev"):
        (tmp_path / f"{split}.parquet").write_text("of an earlier run")

    def rows():
        yield row(0)
        yield row(1)
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_splits(tmp_path, COLUMNS, rows(), {"q1"})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "train.parquet": "of an earlier run",
        "dev.parquet": "of an earlier run",
    }
