"""Recipes are found by name from anywhere, listed, and copied."""

from pathlib import Path

import pytest

from notewriter.fetching import recipe as command
from notewriter.ground import config, recipes
from notewriter.ground.errors import UserError


def test_every_recipe_says_in_a_sentence_what_it_is_for():
    names = recipes.names()
    assert {"dpo/quickstart_smollm2", "accelerate/zero3", "slurm/train.sbatch"} <= set(names)
    runs = [name for name in names if name.startswith(("accelerate/", "data/", "dpo/", "sft/", "eval/"))]
    assert all(recipes.purpose(recipes.file_named(name)) for name in runs)


def test_a_recipe_is_named_without_its_folder_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert recipes.find("eval/quickstart") == recipes.RECIPES / "eval/quickstart.yaml"
    assert recipes.find("eval/quickstart.yaml") == recipes.RECIPES / "eval/quickstart.yaml"
    assert recipes.find("configs/eval/quickstart.yaml") == recipes.RECIPES / "eval/quickstart.yaml"
    assert config.given(["--config", "eval/quickstart"])["method"] == "deepnote"


def test_a_file_of_ones_own_comes_before_a_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("eval").mkdir()
    Path("eval/quickstart.yaml").write_text("method: vanilla\n")
    assert config.given(["--config", "eval/quickstart.yaml"]) == {
        "method": "vanilla",
        "config": "eval/quickstart.yaml",
    }


def test_what_is_no_recipe_stays_a_path():
    assert recipes.find("eval/nothing.yaml") == Path("eval/nothing.yaml")


def test_a_folder_of_ours_is_named_from_anywhere_and_ones_own_comes_before_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert recipes.folder("prompts/short") == recipes.RECIPES / "prompts/short"
    assert recipes.folder("configs/prompts/short") == recipes.RECIPES / "prompts/short"
    assert recipes.folder("prompts/long") == Path("prompts/long")
    Path("prompts/short").mkdir(parents=True)
    assert recipes.folder("prompts/short") == Path("prompts/short")


def test_the_command_lists_and_copies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command.main([])
    assert "eval/quickstart " in capsys.readouterr().out
    command.main(["eval/quickstart"])
    assert Path("quickstart.yaml").read_text() == recipes.find("eval/quickstart").read_text()
    with pytest.raises(UserError, match=r"quickstart\.yaml: exists"):
        command.main(["eval/quickstart"])
    command.main(["eval/quickstart", "mine/evaluation.yaml"])
    command.main(["slurm/train.sbatch", "mine"])
    assert {each.name for each in Path("mine").iterdir()} == {"evaluation.yaml", "train.sbatch"}


@pytest.mark.parametrize("argv", [["--all"], ["eval/quickstart", "a", "b"], ["eval/quickstrat"]])
def test_the_command_says_what_it_takes(argv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"recipe \[NAME|did you mean 'eval/quickstart'"):
        command.main(argv)
