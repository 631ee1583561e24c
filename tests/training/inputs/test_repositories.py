"""Data in the layout of a dataset repository: a folder of shards, or a name on the Hugging Face Hub."""

import io
import json
import logging
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
import yaml
from datasets import Dataset, DatasetDict
from fake_hub import serving

from notewriter.ground.errors import UserError
from notewriter.training.inputs import conversations, pairs, repositories, rows

COMMIT = "3949bf5f8c17c394422ccfab0c31ea9c20bdeb85"

Pair = Callable[[int], dict[str, Any]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets_cache")
    for function in (repositories._folder, repositories.pinned, repositories.split_files):
        function.cache_clear()


def write(folder: Path, make_pair: Pair, splits: dict[str, int]) -> Path:
    """A repository of pairs, each split of so many rows in two files of Parquet, as the Hub stores them."""
    for split, count in splits.items():
        made = Dataset.from_list([make_pair(number) for number in range(count)])
        for shard in range(2):
            part = made.shard(2, shard, contiguous=True)
            part.to_parquet(str(folder / f"data/{split}-{shard:05d}-of-00002.parquet"))
    return folder


def test_a_folder_of_shards_is_one_file_per_split(make_pair: Pair, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", make_pair, {"train": 5, "validation": 2})

    files = rows.find_splits(folder, "--pairs", dev=True)

    assert {split: len(pairs.read(file)) for split, file in files.items()} == {"train": 5, "dev": 2}
    assert [row["question_id"] for row in pairs.read(files["train"])] == ["q0", "q1", "q2", "q3", "q4"]
    assert [row["messages"] for row in conversations.read(files["train"])] == [
        make_pair(number)["prompt"] + make_pair(number)["chosen"] for number in range(5)
    ]
    assert repositories.pinned(str(folder)) == str(folder)


def test_a_name_says_its_splits(make_pair: Pair, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", make_pair, {"train_prefs": 4, "test_prefs": 2})

    files = rows.find_splits(f"{folder}:train_prefs,test_prefs", "--pairs")

    assert {split: len(pairs.read(file)) for split, file in files.items()} == {"train": 4, "dev": 2}
    # Rows without a stage have the repository's name and the split's.
    assert files["train"].stem == "mine.train_prefs"
    with pytest.raises(UserError, match=r"mine: has no split train, but .*train_prefs.*; name what to train and to"):
        rows.find_splits(folder, "--pairs")


def test_a_file_that_changes_is_read_again(make_pair: Pair, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", make_pair, {"train": 4})
    assert len(pairs.read(rows.find_splits(folder, "--pairs")["train"])) == 4

    write(folder, make_pair, {"train": 6})
    repositories.split_files.cache_clear()

    assert len(pairs.read(rows.find_splits(folder, "--pairs")["train"])) == 6


def test_a_file_that_is_damaged_is_an_error_of_one_line(make_pair: Pair, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", make_pair, {"train": 4})
    (folder / "data/train-00001-of-00002.parquet").write_bytes(b"PAR1 is what it begins with")

    with pytest.raises(UserError, match=r"mine: .*`datasets` cannot read"):
        rows.find_splits(folder, "--pairs")


def test_json_lines_and_csv_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines/all.jsonl").write_text(json.dumps({"prompt": "who", "chosen": "a", "rejected": "b"}) + "\n")
    (tmp_path / "table").mkdir()
    (tmp_path / "table/all.csv").write_text("prompt,completion\nwho,me\n")

    (pair,) = pairs.read(rows.find_splits(tmp_path / "lines", "--pairs")["train"])
    (conversation,) = conversations.read(rows.find_splits(tmp_path / "table", "--data")["train"])

    assert pair["chosen"] == [{"role": "assistant", "content": "a"}]
    assert [message["content"] for message in conversation["messages"]] == ["who", "me"]


def test_a_folder_of_json_lines_has_the_rows_of_its_file(tmp_path: Path) -> None:
    """`datasets` makes values of texts that are JSON, where a column has values of several kinds."""
    records = [
        {"prompt": "12", "completion": "null"},
        {"prompt": [{"role": "user", "content": "Who?"}], "completion": [{"role": "assistant", "content": '"hi"'}]},
    ]
    (tmp_path / "mine").mkdir()
    for number, record in enumerate(records):
        (tmp_path / f"mine/train-{number}.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    whole = conversations.read(rows.find_splits(tmp_path / "mine", "--data")["train"])

    assert list(whole["messages"]) == list(conversations.read(tmp_path / "one.jsonl")["messages"])
    assert [message["content"] for message in whole[0]["messages"]] == ["12", "null"]
    assert set(whole["stage"]) == {"mine.train"}


def folder_of(folder: Path, **files: str) -> Path:
    """A folder with files of these names, where __ stands for a slash, and texts."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


LINE = json.dumps({"prompt": "who", "completion": "me"}) + "\n"
CELLS = "prompt,completion\nwho,007\nwhen,None\nwhere,1.50\nwhence,2026-01-02\n"


def test_a_folder_of_tables_has_the_rows_of_its_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", **{"all.csv": CELLS})

    whole = conversations.read(rows.find_splits(folder, "--data")["train"])

    assert list(whole["messages"]) == list(conversations.read(folder / "all.csv")["messages"])
    assert [row["messages"][1]["content"] for row in whole] == ["007", "None", "1.50", "2026-01-02"]


def test_a_card_names_what_separates_the_cells_of_tables(tmp_path: Path) -> None:
    card = '---\nconfigs:\n- config_name: default\n  data_files: all.csv\n  sep: ";"\n---\n'
    folder = folder_of(tmp_path, **{"all.csv": CELLS.replace(",", ";"), "README.md": card})

    assert len(conversations.read(rows.find_splits(folder, "--data")["train"])) == 4


@pytest.mark.parametrize("option", ["header: null", 'quotechar: "\'"', "skiprows: 1", 'sep: "::"'])
def test_a_card_with_other_options_of_tables_is_refused(tmp_path: Path, option: str) -> None:
    card = f"---\nconfigs:\n- config_name: default\n  data_files: all.csv\n  {option}\n---\n"
    folder = folder_of(tmp_path, **{"all.csv": CELLS, "README.md": card})
    with pytest.raises(UserError, match=r"card may have no CSV option but sep, one character; convert them"):
        rows.find_splits(folder, "--data")


def test_a_row_of_a_table_with_another_number_of_cells_is_named_in_its_own_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, **{"all.csv": f"{CELLS}a,b,c\n"})
    with pytest.raises(UserError, match=rf"{folder}/all\.csv:6: has 3 cells"):
        rows.find_splits(folder, "--data")


def test_a_file_of_the_split_in_another_form_is_not_left_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, **{"train-1.jsonl": LINE, "train-2.jsonl": LINE, "train-3.csv": CELLS})
    with pytest.raises(UserError, match=r"train has files of several forms, and 'train-3\.csv' would be left out"):
        rows.find_splits(folder, "--data")


def test_a_missing_part_of_a_divided_file_is_told(tmp_path: Path) -> None:
    parts = {f"data__train-0000{number}-of-00003.jsonl": LINE for number in (0, 2)}
    with pytest.raises(UserError, match=r"data: has 2 of the 3 parts of train; copy or download the others"):
        rows.find_splits(folder_of(tmp_path, **parts), "--data")


@pytest.mark.parametrize(("name", "told"), [("train_training.jsonl", "train"), ("train_test.jsonl", "train and test")])
def test_a_file_that_would_be_read_twice_is_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(UserError, match=rf"{name}: is 2 times in {told}; rename it"):
        rows.find_splits(folder_of(tmp_path, **{name: LINE}), "--data", dev="test" in name)


def test_files_of_no_split_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = folder_of(tmp_path, **{"train.json": LINE, "more.json": LINE, ".cache__old.json": LINE, "notes.txt": ""})
    with caplog.at_level(logging.INFO):
        assert len(conversations.read(rows.find_splits(folder, "--data")["train"])) == 1
    assert "not read, since `datasets` finds no split for them: more.json" in caplog.messages[-1]


def test_what_map_leaves_in_a_saved_dataset_is_no_row_of_it(tmp_path: Path) -> None:
    """Nor is what an earlier `save_to_disk` with more files left."""
    saved = Dataset.from_list([{"prompt": "who", "completion": "me"}] * 4)
    saved.save_to_disk(tmp_path / "one", num_shards=3)
    saved.save_to_disk(tmp_path / "one", num_shards=1)
    DatasetDict({"train": saved, "test": saved.select([0])}).save_to_disk(tmp_path / "splits")
    for folder in ("one", "splits"):
        datasets.load_from_disk(tmp_path / folder).map(lambda row: {"completion": row["completion"].upper()})
        assert list(tmp_path.glob(f"{folder}/**/cache-*.arrow"))

        files = rows.find_splits(tmp_path / folder, "--data", dev=folder == "splits")

        texts = [row["messages"][1]["content"] for file in files.values() for row in conversations.read(file)]
        assert texts == ["me"] * (4 if folder == "one" else 5)


def test_saved_datasets_in_a_folder_of_them_are_read_without_what_map_left(tmp_path: Path) -> None:
    Dataset.from_list([{"prompt": "who", "completion": "me"}]).save_to_disk(tmp_path / "mine/train")
    datasets.load_from_disk(tmp_path / "mine/train").map(lambda row: {"completion": "you"})
    with pytest.raises(
        UserError, match=r"cache-\w+\.arrow: is a cache file that `map` of `datasets` left beside the data; remove it"
    ):
        rows.find_splits(tmp_path / "mine", "--data")


def test_saved_datasets_of_several_steps_are_not_joined(tmp_path: Path) -> None:
    row = {"prompt": "who", "completion": "me"}
    for step in ("ask", "judge"):
        DatasetDict({"train": Dataset.from_list([row])}).save_to_disk(tmp_path / "mine" / step)

    with pytest.raises(
        UserError, match=r"mine: has several saved datasets; give one of them: .*mine/ask, .*mine/judge"
    ):
        rows.find_splits(tmp_path / "mine", "--data")
    assert len(conversations.read(rows.find_splits(tmp_path / "mine/ask", "--data")["train"])) == 1


def test_json_under_a_key_of_the_file_is_read_by_the_card(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files: all.json\n  field: data\n---\n"
    )
    (tmp_path / "all.json").write_text(json.dumps({"data": [{"prompt": "who", "completion": "me"}]}))

    (row,) = conversations.read(rows.find_splits(tmp_path, "--data")["train"])

    assert [message["content"] for message in row["messages"]] == ["who", "me"]


ROW = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Mira."}]}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder in the layout of a repository; beside it lies a file that is not its own."""
    (tmp_path / "mine.jsonl").write_text(json.dumps(ROW) + "\n")
    (tmp_path / "theirs/data").mkdir(parents=True)
    (tmp_path / "theirs/data/train.jsonl").write_text(json.dumps(ROW) + "\n")
    return tmp_path / "theirs"


@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "outside",
    [
        "../mine.jsonl",
        "data/../../mine.jsonl",
        "{tmp}/mine.jsonl",
        "https://example.org/rows.jsonl",
        "hf://datasets/owner/other/rows.jsonl",
        "zip://rows.jsonl::data/rows.zip",
        ["data/train.jsonl", "../mine.jsonl"],
        [{"split": "train", "path": ["../mine.jsonl"]}],
    ],
    ids=str,
)
def test_a_card_that_names_a_file_outside_its_folder_is_refused(foreign: Path, outside: object, card: str) -> None:
    outside = outside.format(tmp=foreign.parent) if isinstance(outside, str) else outside
    settings = yaml.safe_dump({"configs": [{"config_name": "default", "data_files": outside}]})
    (foreign / card).write_text(f"---\n{settings}---\nRows.\n" if card.endswith(".md") else settings)
    with pytest.raises(UserError, match=rf"{card}: configs: data_files: .* lies outside the repository") as caught:
        repositories.split_files(str(foreign), dev=False)
    assert "\n" not in str(caught.value)


def test_a_card_whose_folder_of_data_is_elsewhere_is_refused(foreign: Path) -> None:
    (foreign / "README.md").write_text("---\nconfigs:\n- {config_name: default, data_dir: ..}\n---\n")
    with pytest.raises(UserError, match=r"data_dir: '..' lies outside"):
        repositories.split_files(str(foreign), dev=False)


def test_aliases_in_a_card_are_bounded(foreign: Path) -> None:
    lines = [f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 9)}]" for each in range(1, 30)]
    (foreign / "README.md").write_text("\n".join(["---", "a0: &a0 [x]", *lines, "---", ""]))
    with pytest.raises(UserError, match=r"README.md: its YAML cannot be read \(its aliases"):
        repositories.split_files(str(foreign), dev=False)


def test_a_link_that_leads_outside_its_folder_is_refused_and_one_inside_is_followed(foreign: Path) -> None:
    (foreign / "data/train.jsonl").rename(foreign / "rows.txt")
    (foreign / "data/train.jsonl").symlink_to("../rows.txt")
    assert list(repositories.split_files(str(foreign), dev=False)) == ["train"]
    repositories.split_files.cache_clear()
    (foreign / "data/train.jsonl").unlink()
    (foreign / "data/train.jsonl").symlink_to("../../mine.jsonl")
    with pytest.raises(UserError, match=r"train\.jsonl: leads to .*mine\.jsonl, outside"):
        repositories.split_files(str(foreign), dev=False)


@pytest.mark.parametrize("member", ["1.pkl", "1.pyd", "1.pth", "1.json"])
def test_a_dataset_of_archives_is_refused_in_a_line_whatever_it_holds(foreign: Path, member: str) -> None:
    (foreign / "data/train.jsonl").unlink()
    with tarfile.open(foreign / "data/train.tar", "w") as archive:
        content = pickle.dumps({"a": 1})
        info = tarfile.TarInfo(member)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    with pytest.raises(UserError, match="theirs: is a dataset of the form webdataset; training reads parquet, json"):
        repositories.split_files(str(foreign), dev=False)


def test_a_pickle_of_pandas_is_refused(foreign: Path) -> None:
    (foreign / "data/train.jsonl").rename(foreign / "data/train.pkl")
    with pytest.raises(UserError, match=r"form pandas|cannot read it"):
        repositories.split_files(str(foreign), dev=False)


def test_a_run_that_wrote_no_data_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "journal.jsonl").write_text("{}\n")

    with pytest.raises(UserError, match=r"has no train\.parquet: .* or give --pairs the folder"):
        rows.find_splits(tmp_path, "--pairs")


@pytest.fixture
def offline_hub(tmp_path: Path, make_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's cache on a machine without a network, with one commit of one dataset."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub/datasets--someone--preferences"
    write(repository / "snapshots" / COMMIT, make_pair, {"train_prefs": 4, "test_prefs": 2})
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)


@pytest.mark.usefixtures("offline_hub")
@pytest.mark.parametrize("revision", ["", f"@{COMMIT}", "@main"])
def test_a_name_on_the_hub_is_pinned_to_its_commit(revision: str) -> None:
    name = f"someone/preferences{revision}:train_prefs,test_prefs"

    files = rows.find_splits(name, "--pairs", dev=True)

    assert {split: len(pairs.read(file)) for split, file in files.items()} == {"train": 4, "dev": 2}
    assert repositories.pinned(name) == f"someone/preferences@{COMMIT}:train_prefs,test_prefs"
    assert rows.mixed_files({name: 0.5}) == {name: files["train"]}


@pytest.mark.usefixtures("offline_hub")
@pytest.mark.parametrize("name", ["someone/else", f"someone/preferences@{'0' * 40}"])
def test_what_is_not_in_the_cache_of_an_offline_machine_is_named(name: str) -> None:
    with pytest.raises(UserError, match=rf"{name}: is neither a file or folder here nor in the Hub's cache"):
        rows.find_splits(name, "--pairs")


@pytest.mark.integration
def test_a_dataset_is_fetched_from_the_hub_that_the_environment_names(
    make_pair: Pair, tiny_model: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "mine", make_pair, {"train_prefs": 4, "test_prefs": 2})
    command = [sys.executable, "-m", "notewriter.cli", "preflight", "--model_name_or_path", str(tiny_model)]

    def preflight(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "--pairs", name, "--max_length", "64"],
            env=os.environ | hub.environment(tmp_path) | {"HF_TOKEN_PATH": str(tmp_path / "token")},
            capture_output=True,
            text=True,
            timeout=600,
        )

    with serving() as hub:
        for file in sorted(folder.rglob("*.parquet")):
            hub.publish(f"hf://datasets/someone/preferences/{file.relative_to(folder)}", file.read_bytes())
        done = preflight("someone/preferences@main:train_prefs,test_prefs")
        gone = preflight("someone/preferences@older:train_prefs")

    assert done.returncode == 0, done.stderr
    assert "preferences.train_prefs.parquet: 4 rows pass" in done.stdout
    assert "preferences.test_prefs.parquet: 2 rows pass" in done.stdout
    assert gone.returncode == 2
    assert "someone/preferences@older" in gone.stderr.splitlines()[-1]
    assert "this revision is gone" in gone.stderr.splitlines()[-1]
