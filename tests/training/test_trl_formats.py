"""Our trainer takes the preference formats that TRL takes, TRL's takes our rows, and both train the same."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from pair_rows import row as row_of_ours
from parquet_files import write_rows
from transformers import AutoTokenizer, set_seed
from trl import DPOConfig, DPOTrainer

from notewriter.artifacts.pairs import COLUMNS
from notewriter.ground.errors import UserError
from notewriter.training import dpo as train_dpo
from notewriter.training.inputs import conversations, pairs

Row = dict[str, Any]


def explicit(pair: Row) -> Row:
    return {column: pair[column] for column in ("prompt", "chosen", "rejected")}


def implicit(pair: Row) -> Row:
    return {side: pair["prompt"] + pair[side] for side in ("chosen", "rejected")}


def ultrafeedback(pair: Row) -> Row:
    """As HuggingFaceH4/ultrafeedback_binarized: the prompt also as a text, and scores under other names."""
    return implicit(pair) | {"prompt": pair["prompt"][-1]["content"], "score_chosen": 7.0, "messages": pair["chosen"]}


def text(pair: Row) -> Row:
    return {column: pair[column][-1]["content"] for column in ("prompt", "chosen", "rejected")}


def dialogue(pair: Row) -> Row:
    """As HH-RLHF: each side is a text, in which the speakers are marked."""
    apart = text(pair)
    return {side: f"\n\nHuman: {apart['prompt']}\n\nAssistant: {apart[side]}" for side in ("chosen", "rejected")}


FORMATS = {each.__name__: each for each in (explicit, implicit, ultrafeedback, text, dialogue)}


def as_parquet(folder: Path, rows: list[Row]) -> Path:
    Dataset.from_list(rows).to_parquet(str(folder / "train.parquet"))
    return folder / "train.parquet"


def as_json_lines(folder: Path, rows: list[Row]) -> Path:
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "train.jsonl"


@pytest.mark.parametrize("write", [as_parquet, as_json_lines])
@pytest.mark.parametrize("form", FORMATS)
def test_a_format_gives_the_messages_of_the_pairs(
    form: str, write: Callable[[Path, list[Row]], Path], make_pair: Callable[[int], Row], tmp_path: Path
) -> None:
    made = [make_pair(number) for number in range(4)]

    read = pairs.read(write(tmp_path, [FORMATS[form](pair) for pair in made]))

    assert [explicit(pair) for pair in read] == [explicit(pair) for pair in made]
    assert set(read["stage"]) == {"train"} and set(read["question_id"]) == {""}


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "ultrafeedback"])
def test_sft_trains_on_the_chosen_side_of_a_format(form: str, make_pair: Callable[[int], Row], tmp_path: Path) -> None:
    made = [make_pair(number) for number in range(4)]

    read = conversations.read(as_json_lines(tmp_path, [FORMATS[form](pair) for pair in made]))

    assert [row["messages"] for row in read] == [pair["prompt"] + pair["chosen"] for pair in made]
    assert set(read["trained_from"]) == {1}


def losses(trainer: DPOTrainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture
def trl_losses(tiny_model: Path, tmp_path: Path) -> Callable[[Dataset], list[float]]:
    """The losses of TRL's own trainer on a dataset, in the run of `four_steps`."""

    def train(dataset: Dataset) -> list[float]:
        settings = {"max_steps": 4, "per_device_train_batch_size": 4, "max_length": 64, "logging_steps": 1}
        settings |= {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none"}
        settings |= {"learning_rate": 1e-3, "disable_tqdm": True, "save_strategy": "no"}
        set_seed(42)
        trainer = DPOTrainer(
            str(tiny_model),
            args=DPOConfig(output_dir=str(tmp_path / "trl"), **settings),
            train_dataset=dataset,
            processing_class=AutoTokenizer.from_pretrained(tiny_model),
        )
        trainer.train()
        return losses(trainer)

    return train


def our_losses(run: Path) -> list[float]:
    log = json.loads((run / "checkpoint-4/trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in log if "loss" in entry]


@pytest.mark.parametrize("form", ["explicit", "implicit"])
def test_ours_trains_on_a_format_of_trls_as_trls_trainer_does(
    form: str,
    make_pair: Callable[[int], Row],
    four_steps: Callable[..., list[str]],
    trl_losses: Callable[[Dataset], list[float]],
    tmp_path: Path,
) -> None:
    rows = [FORMATS[form](make_pair(number)) for number in range(16)]

    train_dpo.main(four_steps(pairs=as_json_lines(tmp_path, rows), learning_rate=1e-3))

    assert our_losses(tmp_path / "run") == pytest.approx(trl_losses(Dataset.from_list(rows)), rel=1e-5)


def test_trls_trainer_takes_our_rows_with_all_their_columns(
    make_pair: Callable[[int], Row],
    four_steps: Callable[..., list[str]],
    trl_losses: Callable[[Dataset], list[float]],
    tmp_path: Path,
) -> None:
    file = tmp_path / "train.parquet"
    write_rows(file, COLUMNS, [row_of_ours(number) | explicit(make_pair(number)) for number in range(16)])

    train_dpo.main(four_steps(pairs=file, learning_rate=1e-3))

    assert our_losses(tmp_path / "run") == pytest.approx(trl_losses(Dataset.from_parquet(str(file))), rel=1e-5)


def test_llama_factory_takes_our_rows_by_the_line_of_the_docs(make_pair: Callable[[int], Row], tmp_path: Path) -> None:
    """What its SharegptDatasetConverter asks of a row of pairs, by the description on docs/other_data.md."""
    page = (Path(__file__).parents[2] / "docs/other_data.md").read_text()
    (line,) = re.findall(r"^datasets\.Dataset\.from_parquet.*?(?=^```)", page, re.MULTILINE | re.DOTALL)
    (description,) = re.findall(r'^\{"pairs": .*$', page, re.MULTILINE)
    pair = explicit(make_pair(0))
    system = {"role": "system", "content": "the town"}
    write_rows(
        tmp_path / "train.parquet",
        COLUMNS,
        [row_of_ours(0) | pair, row_of_ours(1) | pair | {"prompt": [system, *pair["prompt"]]}],
    )

    subprocess.run([sys.executable, "-c", f"import datasets\n{line}"], cwd=tmp_path, check=True, capture_output=True)

    read = json.loads(description)["pairs"]
    assert (read["ranking"], read["formatting"]) == (True, "sharegpt")
    columns, tags = read["columns"], read["tags"]
    rows = [json.loads(text) for text in (tmp_path / read["file_name"]).read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        # A message of the system may come first; then those of user and assistant alternate, and the user's is last.
        roles = [message[tags["role_tag"]] for message in row[columns["messages"]]]
        assert [role for role in roles if role != tags["system_tag"]] == [tags["user_tag"]]
        for side in ("chosen", "rejected"):
            # Not a list of one: of such a row it would make an example without preferences.
            assert row[columns[side]] == pair[side][0]
            assert row[columns[side]].keys() == {tags["role_tag"], tags["content_tag"]}
            assert row[columns[side]][tags["role_tag"]] == tags["assistant_tag"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"prompt": None}, "has no prompt"),
        ({"chosen": None}, "has no chosen"),
        (
            {"prompt": None, "chosen": "the town", "rejected": "the river"},
            "has no prompt; .*: rename question to prompt",
        ),
        ({"prompt": None, "chosen": "Human: the town", "rejected": "Human: the river"}, "has no prompt"),
        ({"chosen": "the town", "prompt": ""}, "has an empty prompt"),
    ],
)
def test_what_is_no_pair_in_any_format_is_named(
    change: Row, fault: str, make_pair: Callable[[int], Row], tmp_path: Path
) -> None:
    file = as_json_lines(tmp_path, [explicit(make_pair(0)) | {"question": "whose museum"} | change])
    with pytest.raises(UserError, match=rf"train\.jsonl: line 1: {fault}"):
        pairs.read(file)
