"""The import contract in pyproject.toml covers every command."""

import tomllib
from pathlib import Path

from notewriter.cli import COMMANDS, PARTS

ROOT = Path(__file__).parents[1]


def test_every_command_is_protected_from_being_imported():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (protected,) = (each["protected_modules"] for each in contracts if each["type"] == "protected")
    launched = {
        "notewriter.cli",
        "notewriter.training.dpo",
        "notewriter.training.kto",
        "notewriter.training.sft",
    }
    parts = {module for words in PARTS.values() for module in words.values() if module}
    assert set(protected) == launched | {module for module, _ in COMMANDS.values()} | parts


def test_the_library_uses_no_tools_of_tests() -> None:
    files = (ROOT / "notewriter").rglob("*.py")
    assert not [file for file in files if "unittest" in file.read_text(encoding="utf-8")]
