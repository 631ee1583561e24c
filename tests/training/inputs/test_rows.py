"""Files of rows: their splits, their values, the longest row, and a hash of their content."""

import datetime
import decimal
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from datasets import Dataset

from notewriter.ground.errors import UserError
from notewriter.training.inputs import conversations, pairs, rows

Pair = Callable[..., dict[str, Any]]


def test_folder_gives_its_splits_and_a_file_is_for_training(write_pairs: Callable[..., Path]) -> None:
    folder = write_pairs()

    assert list(rows.find_splits(folder, "--pairs")) == ["train", "dev"]
    assert rows.find_splits(folder / "dev.parquet", "--pairs") == {"train": folder / "dev.parquet"}


def test_folder_without_train_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no train\.parquet"):
        rows.find_splits(tmp_path, "--pairs")


@pytest.mark.parametrize("name", ["run.json", "estimate.json"])
def test_what_a_run_leaves_before_its_rows_is_not_read_as_rows(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"pairs": 10}')
    with pytest.raises(UserError, match=r"has no train\.parquet: .* has not ended, or was a dry run"):
        rows.find_splits(tmp_path, "--pairs")


RECORDS = [{"prompt": "Who?", "completion": "007"}, {"prompt": "When?", "completion": "None"}]


def written(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


@pytest.mark.parametrize(
    "other", ["train_part2.jsonl", "train-2.parquet", "train.parquet", "train.csv", "train.json", "train/a.jsonl"]
)
def test_a_folder_with_a_further_file_of_its_split_is_refused(tmp_path: Path, other: str) -> None:
    written(tmp_path / "train.jsonl", RECORDS)
    (tmp_path / other).parent.mkdir(exist_ok=True)
    written(tmp_path / other, RECORDS)

    with pytest.raises(UserError, match=rf"several files of train: .*{other.split('/')[0]}.* or give --pairs .*:train"):
        rows.find_splits(tmp_path, "--pairs")


@pytest.mark.parametrize(
    ("files", "is_named"),
    [
        ("other.jsonl", False),
        ([{"split": "train", "path": "data/train-*"}], False),
        ([{"split": "train", "path": "train.jsonl"}], True),
        ({"train": "./**/*.jsonl"}, True),
    ],
)
def test_a_file_that_the_folders_card_does_not_name_is_refused(tmp_path: Path, files: Any, is_named: bool) -> None:
    written(tmp_path / "train.jsonl", RECORDS)
    (tmp_path / "README.md").write_text(f"---\nconfigs: [{{data_files: {json.dumps(files)}}}]\n---\n")

    if is_named:
        assert rows.find_splits(tmp_path, "--pairs") == {"train": tmp_path / "train.jsonl"}
        return
    with pytest.raises(UserError, match=r"its card names other files than train.jsonl; .* give --pairs .*:train"):
        rows.find_splits(tmp_path, "--pairs")


@pytest.mark.parametrize("other", ["training.json", "train_settings.json", "train.log", "trainer.jsonl"])
def test_a_file_that_holds_no_rows_of_the_split_stays_beside_it(tmp_path: Path, other: str) -> None:
    written(tmp_path / "train.jsonl", RECORDS)
    written(tmp_path / other, RECORDS)

    assert rows.find_splits(tmp_path, "--pairs") == {"train": tmp_path / "train.jsonl"}


def test_a_file_of_any_form_has_the_rows_of_its_json_lines(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(RECORDS)
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_file(str(tmp_path / "a.feather"), table.schema) as writer:
        writer.write_table(table)
    pa.parquet.write_table(table, tmp_path / "parquet")
    Dataset.from_list(RECORDS).to_csv(tmp_path / "a.CSV")
    Dataset.from_list(RECORDS).to_csv(tmp_path / "a.tsv", sep="\t")
    written(tmp_path / "a.JSONL", RECORDS)
    written(tmp_path / "a.ndjson", RECORDS)

    for file in tmp_path.iterdir():
        texts = [[message["content"] for message in row["messages"]] for row in conversations.read(file)]
        assert texts == [["Who?", "007"], ["When?", "None"]], file


@pytest.mark.parametrize("name", ["rows.xlsx", "rows.jsonl.zst", "rows.txt", "rows"])
def test_a_file_of_another_form_is_told_which_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("Who?")
    with pytest.raises(UserError, match=rf"{name}: training reads files that end in \.parquet, \.jsonl, .*\.feather"):
        conversations.read(tmp_path / name)


@pytest.mark.parametrize("name", ["rows.arrow", "rows.feather"])
def test_a_damaged_file_of_arrow_is_an_error_of_the_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("Who?")
    with pytest.raises(UserError, match=rf"{name}: is not a readable Arrow file"):
        conversations.read(tmp_path / name)


def test_one_content_under_two_endings_is_read_by_each(tmp_path: Path) -> None:
    """The cache of rows is kept by content."""
    text = 'prompt\tx,completion\nWho?\t"Mira, Oda"\n'
    (tmp_path / "a.tsv").write_text(text.replace("x,", ""))
    assert conversations.read(tmp_path / "a.tsv")[0]["messages"][1]["content"] == "Mira, Oda"
    (tmp_path / "a.tsv").rename(tmp_path / "a.csv")
    with pytest.raises(UserError, match="separate columns by ','"):
        conversations.read(tmp_path / "a.csv")


def test_no_row_that_fits_is_refused_even_when_long_ones_may_be_dropped(make_pair: Pair) -> None:
    dataset = Dataset.from_list([make_pair(0) | {"row": "row 0", "length": 90}])

    with pytest.raises(UserError, match="every row is longer than max_length 64; give --max_length 90"):
        rows.within_length(dataset, 64, Path("train.parquet"), drop=True)


def test_without_a_limit_every_row_stays(make_pair: Pair) -> None:
    dataset = Dataset.from_list([make_pair(0) | {"row": "row 0", "length": 90}])

    assert rows.within_length(dataset, None, Path("train.parquet"), drop=False) == (dataset, 0)


def test_hash_follows_the_content_and_not_the_place(write_pairs: Callable[..., Path], tmp_path: Path) -> None:
    file = write_pairs() / "train.parquet"
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(file.read_bytes())

    assert rows.sha256([file]) == rows.sha256([copy])
    copy.write_bytes(file.read_bytes() + b"\0")
    assert rows.sha256([file]) != rows.sha256([copy])


def test_one_file_is_told_that_it_cannot_evaluate_and_a_folder_what_it_lacks(write_pairs: Callable[..., Path]) -> None:
    folder = write_pairs()
    (folder / "dev.parquet").unlink()

    remedy = "give --pairs a folder with train and dev, or give --eval_strategy no"
    for path, what in ((folder, "has no dev.parquet or dev.jsonl"), (folder / "train.parquet", "one file has no rows")):
        with pytest.raises(UserError, match=f"{path}: {what} to evaluate on; {remedy}"):
            rows.find_splits(path, "--pairs", dev=True)


def test_a_row_is_named_by_its_line_its_item_or_its_number_in_parquet(tmp_path: Path) -> None:
    records = [{"messages": "a", "question_id": None}, {"messages": "b", "question_id": "q7"}]
    named = {"a.jsonl": '{"messages": "a"}\n\n{"messages": "b", "question_id": "q7"}\n', "a.json": json.dumps(records)}
    for name, text in named.items():
        (tmp_path / name).write_text(text)
    Dataset.from_list(records).to_parquet(str(tmp_path / "a.parquet"))

    def names(name: str) -> list[str]:
        return [row["row"] for row in rows.read(tmp_path / name)]

    assert names("a.jsonl") == ["line 1", "line 3 (question q7)"]
    assert names("a.json") == ["item 1", "item 2 (question q7)"]
    assert names("a.parquet") == ["row 0 (counted from 0)", "row 1 (question q7)"]


def calling(**arguments: Any) -> dict[str, Any]:
    """A conversation with a call of a tool with these arguments."""
    call = {"type": "function", "function": {"name": "find", "arguments": arguments}}
    return {
        "messages": [
            {"role": "user", "content": "Where is the mill?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
    }


def arguments_of(path: Path) -> list[dict[str, Any]]:
    return [row["messages"][1]["tool_calls"][0]["function"]["arguments"] for row in conversations.read(path)]


NUMBERS = {"latitude": 52.370215678912345, "least": 1e-12, "id": 2**70, "none": None, "text": "1.50"}


def test_numbers_are_kept_as_they_are_written(tmp_path: Path) -> None:
    """`datasets` would round them in a column of its own type of JSON."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(calling(**NUMBERS) | {"tools": [NUMBERS], "chat_template_kwargs": NUMBERS}))

    (row,) = conversations.read(path)

    assert arguments_of(path) == [NUMBERS]
    assert row["tools"] == [NUMBERS]
    assert row["variables"] == {name: value for name, value in NUMBERS.items() if value is not None}


def test_numbers_of_a_pair_are_kept_as_they_are_written(tmp_path: Path) -> None:
    asked, called = calling(**NUMBERS)["messages"]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": [asked], "chosen": [called], "rejected": "There.", "tools": [NUMBERS]}))

    (pair,) = pairs.read(path)

    assert (pair["chosen"][0]["tool_calls"][0]["function"]["arguments"], pair["tools"]) == (NUMBERS, [NUMBERS])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime.datetime(2026, 1, 2), "a datetime; write it as text"),
        (datetime.date(2026, 1, 2), "a date; write it as text"),
        (datetime.timedelta(1), "a timedelta; write it as text"),
        (b"mill", "a bytes; write it as text"),
        (decimal.Decimal("1.50"), "a Decimal; write it as text"),
        (math.nan, "NaN or Infinity, which is no number in JSON; write it as text"),
        (math.inf, "NaN or Infinity, which is no number in JSON; write it as text"),
    ],
)
def test_a_value_that_json_has_no_form_for_is_refused(tmp_path: Path, value: Any, kind: str) -> None:
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.Table.from_pylist([calling(what="mill"), calling(what=None, value=value)]), path)
    with pytest.raises(
        UserError, match=rf"rows\.parquet: row 1 \(counted from 0\): holds {kind}; fix or remove the row"
    ):
        conversations.read(path)


def test_a_date_in_a_column_that_names_the_stage_is_its_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.Table.from_pylist([calling(what="mill") | {"stage": datetime.date(2026, 1, 2)}]), path)
    assert conversations.read(path)["stage"][0] == "2026-01-02"


def test_arguments_have_no_content_of_another_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.Table.from_pylist([calling(content="a note"), calling(what="mill")]), path)
    assert arguments_of(path) == [{"content": "a note"}, {"what": "mill"}]
    # A message keeps its own, which templates ask for.
    assert [row["messages"][1]["content"] for row in conversations.read(path)] == [None, None]


def map_of(arguments: list[tuple[str, str]], path: Path) -> Path:
    """A file whose column `tools` is a list of Arrow's maps."""
    asked = pa.array([[{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "There."}]])
    maps = pa.array([[arguments]], pa.list_(pa.map_(pa.string(), pa.string())))
    pa.parquet.write_table(pa.table({"messages": asked, "tools": maps}), path)
    return path


def test_a_map_of_parquet_is_an_object(tmp_path: Path) -> None:
    (row,) = conversations.read(map_of([("name", "find"), ("for", "mills")], tmp_path / "rows.parquet"))
    assert row["tools"] == [{"name": "find", "for": "mills"}]


def test_a_map_with_a_key_twice_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rows\.parquet: rows 0 to 0 are damaged .*duplicate key"):
        conversations.read(map_of([("name", "find"), ("name", "seek")], tmp_path / "rows.parquet"))
