"""The scripts at the top of the repository: a docstring with the command, an import, a call."""

import ast
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOORS = [path for folder in ("data_construction", "eval", "training") for path in sorted((ROOT / folder).iterdir())]
DOORS = [path for path in DOORS if path.name != "__pycache__"]


def test_there_is_a_door_for_each_stage_that_users_of_this_field_look_for():
    names = {str(path.relative_to(ROOT)) for path in DOORS}
    assert names == {
        "data_construction/build_chains.py",
        "data_construction/build_pairs.py",
        "eval/evaluate.py",
        "training/train_dpo.py",
        "training/train_kto.py",
        "training/train_sft.py",
    }


@pytest.mark.parametrize("door", DOORS, ids=lambda path: path.name)
def test_a_door_holds_nothing_but_its_command_and_a_call(door):
    docstring, *imports, call = ast.parse(door.read_text(encoding="utf-8")).body
    assert isinstance(docstring, ast.Expr) and "--config configs/" in docstring.value.value
    assert all(isinstance(each, ast.Import | ast.ImportFrom) for each in imports) and isinstance(call, ast.If)


@pytest.mark.parametrize("door", DOORS, ids=lambda path: path.name)
def test_a_door_opens(door, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(door), "--help"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(door), run_name="__main__")
    assert stopped.value.code in (None, 0)
    assert "usage: " in capsys.readouterr().out
