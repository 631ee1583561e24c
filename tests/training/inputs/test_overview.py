"""The overview shows lengths by stage and what is trained, and has no effect on a terminal."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from notewriter.training.inputs import overview


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def test_lengths_are_shown_by_stage() -> None:
    lines = overview.lengths_by_stage({"note": [10, 20, 30, 240], "answer": [120]}).splitlines()

    assert lines[0].split() == ["stage", "rows", "min", "median", "95%", "max", "tokens"]
    assert lines[1].split() == ["answer", "1", "120", "120", "120", "120"]
    assert lines[2].split() == ["note", "4", "10", "20", "30", "240"]


def test_the_preview_marks_what_is_trained(tokenizer: PreTrainedTokenizerBase) -> None:
    row = {"input_ids": [6, 7, 8, 2], "labels": [-100, -100, 8, 2], "stage": "s", "row": "line 1"}

    assert overview.preview(row, tokenizer) == ("--- s, line 1: 2 of 4 tokens are trained\nthe river⟦crosses <end>⟧\n")


def test_of_a_long_prompt_the_preview_shows_the_ends(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = [6] + [7] * 500 + [8, 9, 2]
    row = {"input_ids": ids, "labels": [-100] * 501 + [8, 9, 2], "stage": "s", "row": "line 1"}

    shown = overview.preview(row, tokenizer, context=3)

    assert "the river river [... 495 tokens ...] river river river⟦crosses a <end>⟧" in shown


def test_control_characters_have_no_effect_on_a_terminal(tokenizer: PreTrainedTokenizerBase) -> None:
    row = {"input_ids": [6, 2], "labels": [-100, 2], "stage": "s\x1b[2J", "row": "line 1 (question q\x9b31m\u202e)"}

    shown = overview.preview(row, tokenizer)

    assert shown.startswith("--- s\\x1b[2J, line 1 (question q\\x9b31m\\u202e): 1 of 2")
    assert "\\x1b" in overview.lengths_by_stage({"s\x1b[2J": [1]})
