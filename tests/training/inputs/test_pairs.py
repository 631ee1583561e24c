"""Pairs are checked before training: a mistake names the file, the row and what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from chat_families import STOPS, TEMPLATES, tokenizer_of
from datasets import Dataset
from transformers import AutoTokenizer

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.training.inputs import pairs, rows

Pair = Callable[..., dict[str, Any]]


def test_rows_are_read_without_the_columns_that_training_does_not_use(write_pairs: Callable[..., Path]) -> None:
    dataset = pairs.read(write_pairs() / "train.parquet")

    assert dataset.column_names == list(pairs.FEATURES)
    assert rows.count_by_stage(dataset) == {"init_note": 8, "refine_note": 8}


def test_a_file_is_read_by_the_first_process_and_found_in_the_cache_by_the_others(
    write_pairs: Callable[..., Path], make_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    # Without stages: that of its rows is the file's name.
    rows_without = [{key: value for key, value in make_pair(number).items() if key != "stage"} for number in range(3)]
    file = write_pairs(rows_without) / "train.parquet"
    first = pairs.read(file)
    copy = file.with_name("more.parquet")
    copy.write_bytes(file.read_bytes())
    assert set(pairs.read(copy)["stage"]) == {"more"}

    def again(*_: object) -> None:
        raise AssertionError("the file is read again")

    monkeypatch.setattr(pairs, "stream", again)
    second = pairs.read(file)

    assert second.to_list() == first.to_list() and set(second["stage"]) == {"train"}
    assert second._fingerprint == first._fingerprint


def test_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_text("prompt,chosen,rejected\n")

    with pytest.raises(UserError, match=r"train\.parquet: is not a readable Parquet file"):
        pairs.read(tmp_path / "train.parquet")


def test_missing_column_is_named(write_pairs: Callable[..., Path], make_pair: Pair) -> None:
    rows = [{key: value for key, value in make_pair(0).items() if key != "rejected"}]

    with pytest.raises(UserError, match=r"train\.parquet: row 0 .*: has no rejected"):
        pairs.read(write_pairs(rows) / "train.parquet")


def test_file_without_rows_is_refused(tmp_path: Path, make_pair: Pair) -> None:
    Dataset.from_list([make_pair(0)]).select([]).to_parquet(str(tmp_path / "train.parquet"))

    with pytest.raises(UserError, match="has no rows"):
        pairs.read(tmp_path / "train.parquet")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"prompt": [{"role": "assistant", "content": "note"}]}, "prompt ends with a message of the assistant"),
        ({"prompt": []}, "prompt is not a list of messages"),
        ({"chosen": [{"role": "user", "content": "note"}]}, "chosen is not one message of the assistant"),
        ({"rejected": [{"role": "assistant", "content": None}]}, "rejected has an empty message of the assistant"),
    ],
)
def test_row_that_is_no_pair_is_named(
    write_pairs: Callable[..., Path], make_pair: Pair, change: dict[str, Any], fault: str
) -> None:
    rows = [make_pair(0), make_pair(1), make_pair(2) | change]

    with pytest.raises(UserError, match=rf"row 2 \(question q2\): {fault}"):
        pairs.read(write_pairs(rows) / "train.parquet")


def test_length_is_that_of_the_longer_side_under_the_chat_template(
    tiny_model: Path, write_pairs: Callable[..., Path], make_pair: Pair
) -> None:
    file = write_pairs([make_pair(0, words=8)]) / "train.parquet"

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    dataset = pairs.tokenize(pairs.read(file), tokenizer, frozenset([tokenizer.eos_token_id]), file)

    # <user> 8 words <end> <assistant> 2 words <end>
    assert dataset["length"][:] == [14]


@pytest.mark.parametrize(
    ("family", "chosen", "rejected"),
    [
        ("llama3", "town <eot>", "river <eot>"),
        # The template ends no turn; that of the user's next one, at which a server stops, does.
        ("glm4", "town <|user|>", "river <|user|>"),
    ],
)
def test_completions_are_measured_with_what_ends_the_turn(family: str, chosen: str, rejected: str) -> None:
    tokenizer, stops = tokenizer_of(TEMPLATES[family], STOPS[family])
    row = {
        "prompt": [{"role": "user", "content": "whose museum"}],
        "chosen": [{"role": "assistant", "content": "town"}],
        "rejected": [{"role": "assistant", "content": "river"}],
        "row": "row 0",
    }

    (measured,) = pairs.tokenize(Dataset.from_list([row]), tokenizer, stops, Path("train.parquet"))

    assert tokenizer.decode(measured["chosen_ids"]) == chosen
    assert tokenizer.decode(measured["rejected_ids"]) == rejected
    assert measured["length"] == len(measured["prompt_ids"]) + 2
    assert measured["diverging"] == ""


def test_rows_of_kto_may_be_sorted_by_their_label(tiny_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    # One more than are tokenised at once.
    jsonl.write(file, ({"prompt": "whose museum", "completion": "town", "label": row < 64} for row in range(65)))

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    dataset = pairs.tokenize(pairs.read(file, labelled=True), tokenizer, frozenset([tokenizer.eos_token_id]), file)

    good, bad = dataset[0], dataset[64]
    assert good["rejected_ids"] == bad["chosen_ids"] == []
    assert tokenizer.decode(good["chosen_ids"]) == tokenizer.decode(bad["rejected_ids"]) == "town <end>"


def test_row_that_the_chat_template_refuses_is_named(
    tiny_model: Path, write_pairs: Callable[..., Path], make_pair: Pair
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}"
        "{% for message in messages %}{{ message.content }} {% endfor %}"
    )
    rows = [make_pair(0), make_pair(1)]
    rows[1]["prompt"].insert(0, {"role": "system", "content": "the town"})
    file = write_pairs(rows) / "train.parquet"

    with pytest.raises(UserError, match=r"row 1 .*: the model's chat template refuses it .no system role here"):
        pairs.tokenize(pairs.read(file), tokenizer, frozenset([tokenizer.eos_token_id]), file)


def test_a_template_that_fails_is_named_with_the_row(tiny_model: Path, write_pairs: Callable[..., Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = "{% for number in range(10**9) %}{% endfor %}"
    file = write_pairs() / "train.parquet"

    with pytest.raises(
        UserError, match=r"row 0 .*: the model's chat template refuses it \(OverflowError: Range too big"
    ):
        pairs.tokenize(pairs.read(file), tokenizer, frozenset([tokenizer.eos_token_id]), file)
