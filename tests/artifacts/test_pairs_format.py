import pyarrow.parquet
import pytest
from datasets import load_dataset
from pair_rows import row
from parquet_files import write_rows

from notewriter.artifacts.pairs import COLUMNS

DOCUMENTED = [
    *("schema", "prompt", "chosen", "rejected", "stage", "method", "question_id", "dataset", "top_k"),
    *("chosen_source", "rejected_source", "chosen_score", "rejected_score", "chosen_noise", "rejected_noise"),
    *("judge", "judge_replies", "judge_orders"),
    *("prompt_tokens", "chosen_tokens", "rejected_tokens"),
]


def load(path, tmp_path):
    return load_dataset("parquet", data_files={"train": str(path)}, split="train", cache_dir=str(tmp_path / "cache"))


def test_pairs_have_the_documented_columns(tmp_path):
    assert write_rows(tmp_path / "train.parquet", COLUMNS, [row(1)]) == 1
    assert COLUMNS.names == pyarrow.parquet.read_schema(tmp_path / "train.parquet").names == DOCUMENTED


def test_what_is_written_is_what_datasets_loads(tmp_path):
    path = tmp_path / "train.parquet"
    rows = [row(number) for number in range(7)]
    assert write_rows(path, COLUMNS, iter(rows), batch=3) == 7
    nothing = {"temperature": None, "top_p": None, "max_tokens": None}
    expected = [each | {"chosen_source": nothing | each["chosen_source"]} for each in rows]
    assert load(path, tmp_path).to_list() == expected


@pytest.mark.parametrize("count", [1, 3, 6])
def test_batches_that_are_just_full_load_too(tmp_path, count):
    path = tmp_path / "dev.parquet"
    assert write_rows(path, COLUMNS, map(row, range(count)), batch=3) == count
    loaded = load(path, tmp_path)
    assert loaded.column_names == DOCUMENTED
    assert loaded["question_id"] == [f"q{number}" for number in range(count)]


def test_a_file_without_pairs_has_the_columns_all_the_same(tmp_path):
    assert write_rows(tmp_path / "train.parquet", COLUMNS, []) == 0
    assert pyarrow.parquet.read_table(tmp_path / "train.parquet").schema == COLUMNS


def test_a_file_appears_when_it_is_whole_and_the_same_rows_give_the_same_bytes(tmp_path):
    path = tmp_path / "train.parquet"
    write_rows(path, COLUMNS, map(row, range(4)))
    before = path.read_bytes()

    def failing():
        yield row(9)
        raise RuntimeError("the journal ended")

    with pytest.raises(RuntimeError, match="the journal ended"):
        write_rows(path, COLUMNS, failing())
    assert path.read_bytes() == before
    write_rows(path, COLUMNS, map(row, range(4)))
    assert path.read_bytes() == before
