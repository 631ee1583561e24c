"""Files of rows: their splits, the longest row, and a hash of their content."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from notewriter.ground.errors import UserError
from notewriter.training.inputs import rows

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
