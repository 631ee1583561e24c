"""The parser of a command's options: what `--help` tells."""

from dataclasses import dataclass, field

import pytest
from option_classes import Arguments, Model

from notewriter.ground import config


def test_help_tells_every_option_and_ends_well(capsys):
    with pytest.raises(SystemExit) as caught:
        config.parse(Arguments, ["--help"], prog="notewriter dream", description="Dream of notes.")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "notewriter dream" in text
    assert "Dream of notes." in text
    for part in ("--path", "a file", "--options", "what else", "--config"):
        assert part in text


def test_help_tells_what_is_required_and_the_defaults_that_say_something(capsys):
    with pytest.raises(SystemExit):
        config.parse([Arguments, Model], ["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for part in ("a file (required)", "how many (default: 5)", "whether (default: False)", "who (default: ['a'])"):
        assert part in text
    for part in ("at most", "which", "what else", "which override it"):
        assert f"{part} (default" not in text
    assert "None" not in text


def test_help_names_an_option_once_and_the_required_ones_first(capsys):
    @dataclass
    class Switch:
        shown_often: bool = field(default=True, metadata={"help": "whether"})

    with pytest.raises(SystemExit):
        config.parse([Arguments, Switch], ["--help"], prog="command")
    usage, *options = capsys.readouterr().out.splitlines()
    assert usage == "usage: command --path PATH [--OPTION VALUE ...]"
    assert [line for line in options if "shown" in line] == ["  --shown_often [true|false]"]
    assert config.parse([Switch], ["--no-shown-often"])[0].shown_often is False


def test_help_keeps_the_paragraphs_and_the_commands_of_a_description(capsys):
    text = (
        "What it does, in a line that is\nbroken in the source.\n\n    command --path x\n    command --path y\n\nMore."
    )
    with pytest.raises(SystemExit):
        config.parse(Arguments, ["--help"], prog="command", description=text)
    shown = capsys.readouterr().out
    assert "in a line that is broken in the source.\n\n    command --path x\n    command --path y\n\nMore.\n" in shown
