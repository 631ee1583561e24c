"""Completion, tried in a bash that has the script."""

import shutil
import subprocess
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Literal
from unittest import mock

import pytest

from notewriter.ground.completion import script
from notewriter.ground.config import parse
from notewriter.ground.plugins import Plugins

METRICS = Plugins("nobody", int, {"em": 1})


@dataclass
class Options:
    """Options of every kind that completion knows."""

    top_k: int = field(default=1, metadata={"help": "a number"})
    kind: Literal["dense", "sparse"] = field(default="dense", metadata={"help": "one of two"})
    dry_run: bool = field(default=False, metadata={"help": "a switch"})


def main(argv):
    parse(Options, argv, prog="notewriter index")


@dataclass
class OtherOptions:
    """Those of a training that takes other values of the same option, one of which packages add to."""

    kind: Literal["whole", "part"] = field(default="whole", metadata={"help": "one of two"})
    metric: str = field(default="em", metadata={"help": "one of: em", "plugins": METRICS})


def train(argv):
    parse(Options if argv[0] == "dpo" else OtherOptions, argv[1:], prog=f"notewriter train {argv[0]}")


COMMANDS = {
    "index": main,
    "inspect": main,
    "train": lambda argv: None,
    "train dpo": lambda argv: train(["dpo", *argv]),
    "train sft": lambda argv: train(["sft", *argv]),
    "serve": main,
    "serve retriever": lambda argv: parse(OtherOptions, argv, prog="notewriter serve retriever"),
}


@pytest.fixture(scope="module", autouse=True)
def installed():
    """A package with a metric."""
    entry = EntryPoint("mine", "package:METRIC", "notewriter.nobody")
    with mock.patch("notewriter.ground.plugins.entry_points", lambda group: [entry]):
        yield


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """What bash offers for the last of the words of a command line."""
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    folder = tmp_path_factory.mktemp("completion")
    (folder / "script").write_text(script("bash", COMMANDS))
    (folder / "corpus.jsonl").touch()

    def offers(*words):
        program = (
            'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _notewriter; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", program, "bash", *words], cwd=folder, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return offers


def test_the_first_word_is_a_command(complete):
    assert complete("notewriter", "in") == ["index", "inspect"]
    assert complete("notewriter", "") == ["index", "inspect", "train", "serve"]


def test_options_are_those_of_the_command(complete):
    assert complete("notewriter", "index", "--") == [
        "--help",
        "--top_k",
        "--kind",
        "--dry_run",
        "--config",
        "--plugins",
    ]
    assert complete("notewriter", "index", "--t") == ["--top_k"]
    assert complete("notewriter", "unknown", "--t") == []


def test_a_value_is_one_of_those_that_the_option_takes_or_a_file(complete):
    assert complete("notewriter", "index", "--kind", "") == ["dense", "sparse"]
    assert complete("notewriter", "index", "--dry_run", "t") == ["true"]
    assert complete("notewriter", "index", "--config", "cor") == ["corpus.jsonl"]


def test_a_command_with_words_of_its_own_completes_them(complete):
    assert complete("notewriter", "train", "") == ["dpo", "sft"]
    assert "--top_k" in complete("notewriter", "train", "dpo", "--t")


def test_a_value_is_one_of_those_of_the_training_that_is_named(complete):
    assert complete("notewriter", "train", "dpo", "--kind", "") == ["dense", "sparse"]
    assert complete("notewriter", "train", "sft", "--kind", "") == ["whole", "part"]
    assert complete("notewriter", "train", "sft", "--metric", "") == ["em", "mine"]


def test_a_command_with_a_part_of_its_own_is_completed_with_and_without_it(complete):
    assert complete("notewriter", "serve", "re") == ["retriever"]
    assert complete("notewriter", "serve", "--kind", "") == ["dense", "sparse"]
    assert complete("notewriter", "serve", "retriever", "--kind", "") == ["whole", "part"]


def test_help_names_what_installed_packages_add(capsys):
    with pytest.raises(SystemExit):
        train(["sft", "--help"])
    assert "one of: em (default: em); installed: mine" in " ".join(capsys.readouterr().out.split())


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_takes_the_script(tmp_path):
    (tmp_path / "_notewriter").write_text(script("zsh", COMMANDS))
    program = "autoload -U compinit; compinit -u -D; source ./_notewriter; which _notewriter"
    done = subprocess.run(["zsh", "-f", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "COMPREPLY" in done.stdout, done.stderr
