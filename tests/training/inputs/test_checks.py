"""Each way of training on the wrong tokens is found before the first step, and what is shown can be trusted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from notewriter.ground.errors import UserError
from notewriter.training.inputs import checks, pairs

Pair = Callable[..., dict[str, Any]]


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def check_pairs(tokenizer: PreTrainedTokenizerBase, *rows: dict[str, Any]) -> None:
    """As training checks pairs that lie in train.parquet."""
    stops = frozenset([tokenizer.eos_token_id])
    measured = pairs.tokenize(
        Dataset.from_list([each | {"row": f"row {number}"} for number, each in enumerate(rows)]),
        tokenizer,
        stops,
        Path("train.parquet"),
    )
    checks.check_pairs(measured, tokenizer, stops, "train.parquet")


def sample(ids: list[int], labels: list[int]) -> Dataset:
    return Dataset.from_list([{"row": "row 0", "input_ids": ids, "labels": labels, "stage": "s"}])


def test_sound_pairs_pass(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    check_pairs(tokenizer, make_pair(0), make_pair(1))


def test_a_chosen_equal_to_its_rejected_is_an_error(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    same = make_pair(1)
    same["rejected"] = same["chosen"]

    with pytest.raises(UserError, match=r"1 fault\(s\) in 2 rows: row 1: chosen and rejected are the sa"):
        check_pairs(tokenizer, make_pair(0), same)


def test_a_prompt_that_does_not_begin_both_sides_is_an_error(
    tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    tokenizer.chat_template += "{% if add_generation_prompt %}the town {% endif %}"

    with pytest.raises(UserError, match=r"row 0: .*prompt is not the beginning of both sides: a server renders 'town'"):
        check_pairs(tokenizer, make_pair(0))


def test_an_end_of_turn_at_which_no_server_stops_is_an_error(
    tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    # As Qwen's base models do: the template has <|im_end|>, and the end of sequence is another token.
    tokenizer.eos_token = "<system>"

    with pytest.raises(
        UserError, match=r"chosen: the trained part ends in 'the <end>' without a token that ends a turn \(<system>\)"
    ):
        check_pairs(tokenizer, make_pair(0))


def test_an_end_of_turn_in_a_text_is_an_error(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    broken = make_pair(0)
    broken["rejected"][0]["content"] = "a <end> river"

    with pytest.raises(UserError, match=r"rejected holds <end> in a text of the assistant: it is a special token"):
        check_pairs(tokenizer, broken)


def test_an_end_of_turn_that_the_template_writes_into_an_answer_is_an_error(
    tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "{{ message.content }}", "{{ message.content.replace('ago', '<end> ago') }}"
    )

    with pytest.raises(UserError, match=r"rejected: <end> ends a turn in the middle of the trained part"):
        check_pairs(tokenizer, make_pair(0))


def test_an_answer_of_which_the_template_writes_the_end_alone_is_an_error(
    tokenizer: PreTrainedTokenizerBase, make_pair: Pair
) -> None:
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "{{ message.content }}", "{{ message.content.split('</think>')[-1] }}"
    )
    thought = make_pair(1) | {"rejected": [{"role": "assistant", "content": "the river </think>"}]}

    with pytest.raises(
        UserError, match=r"row 1: rejected: the model's chat template writes only the end-of-turn token"
    ):
        check_pairs(tokenizer, make_pair(0), thought)


def test_a_mask_that_trains_nothing_is_an_error(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(UserError, match=r"data: 1 fault\(s\) in 1 rows: row 0: none of its tokens is trained"):
        checks.check(sample([6, 7, 2], [-100, -100, -100]), tokenizer, frozenset([2]), "data")


def test_a_doubled_beginning_of_sequence_is_an_error(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    tokenizer.bos_token = "<system>"
    check_pairs(tokenizer, make_pair(0))
    tokenizer.chat_template = "<system> <system> " + tokenizer.chat_template

    with pytest.raises(UserError, match=r"begins with two <system>"):
        check_pairs(tokenizer, make_pair(0))


def test_padding_that_is_trained_is_an_error(tokenizer: PreTrainedTokenizerBase, make_pair: Pair) -> None:
    tokenizer.pad_token = "<end>"

    with pytest.raises(UserError, match="the padding token <end> is trained"):
        check_pairs(tokenizer, make_pair(0))


def test_another_padding_is_chosen_where_it_would_be_trained(tokenizer: PreTrainedTokenizerBase) -> None:
    end = tokenizer.eos_token_id
    checks.choose_padding(tokenizer, {end})
    assert tokenizer.pad_token == "<pad>"

    tokenizer.add_special_tokens({"additional_special_tokens": ["<|image|>", "<|right_pad_id|>"]})
    checks.choose_padding(tokenizer, {end, tokenizer.pad_token_id})
    assert tokenizer.pad_token == "<|right_pad_id|>"


def test_no_more_than_five_faults_are_named(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [{"row": f"line {i}", "input_ids": [6], "labels": [-100], "stage": "s"} for i in range(8)]

    with pytest.raises(UserError, match=r"8 fault\(s\) .*line 4: .*; and 3 more$"):
        checks.check(Dataset.from_list(rows), tokenizer, frozenset([2]), "data")


def test_a_token_without_an_embedding_is_refused_by_its_row(tiny_model: Path) -> None:
    """As after tokens were added to the tokenizer alone; most tokenizers have none more than the model."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    size = len(tokenizer)
    within, beyond = (sample([3, token], [-100, 2]) for token in (4, size))
    checks.check_vocabulary({"train": beyond}, tokenizer, str(tiny_model), "main")
    tokenizer.add_tokens(["<note>"])
    checks.check_vocabulary({"train": within}, tokenizer, str(tiny_model), "main")
    with pytest.raises(UserError, match=rf"train: row 0: holds '<note>', token {size}, .*resize"):
        checks.check_vocabulary({"train": beyond}, tokenizer, str(tiny_model), "main")
