"""Options under the names of other trainers: the error names ours, and docs/other_data.md lists them all."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.other_names import OTHER_NAMES, ours

DPO = {"pairs", "model_name_or_path", "max_length", "dtype", "lora_r", "loss_weights"}
PAGE = Path(__file__).parents[2] / "docs/other_data.md"


@pytest.mark.parametrize(
    ("name", "known", "remedy"),
    [
        ("torch_dtype", DPO, "it is 'dtype' here"),
        ("base_model", DPO, "it is 'model_name_or_path' here"),
        ("dataset_name", DPO, "it is 'pairs' here"),
        ("dataset_name", {"data"}, "it is 'data' here"),
        ("rpo_alpha", DPO, "it is 'loss_weights' here, with loss_type: [sigmoid, sft]"),
        ("rpo_alpha", {"data"}, ""),
        ("val_set_size", {"index"}, ""),
        ("top_k", DPO, ""),
    ],
)
def test_it_is_ours_where_the_command_has_it(name, known, remedy):
    assert ours(name, known) == remedy


@dataclass
class Options:
    dtype: str = "float32"
    pairs: str = ""


def test_an_error_of_options_says_so(tmp_path):
    with pytest.raises(UserError, match="unknown option --torch-dtype; it is 'dtype' here"):
        parse(Options, ["--torch-dtype", "bfloat16"], prog="train")
    (tmp_path / "own.yaml").write_text("torch_dtype: bfloat16\n")
    with pytest.raises(UserError, match=r"own.yaml:1: unknown key 'torch_dtype'; it is 'dtype' here"):
        parse(Options, ["--config", str(tmp_path / "own.yaml")], prog="train")


def test_a_held_out_part_is_a_file_of_its_own():
    assert ours("val_set_size", DPO).startswith("put the questions or rows held out into a file dev beside train")


def test_the_page_lists_them_all():
    _, _, page = PAGE.read_text(encoding="utf-8").partition("## Options under other trainers' names")
    for name, (options, _) in OTHER_NAMES.items():
        (line,) = [line for line in page.splitlines() if line.startswith("| ") and f"`{name}`" in line.split("|")[1]]
        assert all(f"`{option}`" in line for option in options)
