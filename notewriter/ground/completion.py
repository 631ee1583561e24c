"""Completion of commands and options in bash and zsh: a script made of the parsers of the commands themselves."""

import argparse
import contextlib
import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from unittest import mock

from notewriter.ground.config import choose

SHELLS = {
    "bash": "",
    # zsh runs bash's functions of completion.
    "zsh": "#compdef notewriter\nautoload -U +X bashcompinit && bashcompinit\n",
}
"""The shells, each with the lines that come first in its script."""

SCRIPT = """\
_notewriter() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} words=
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        words={commands}
    elif [[ $word == -* ]]; then
        case $command in
{options}
        esac
    else
        case "$command $before" in
{values}
        esac
    fi
    if [[ -n $words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    elif [[ $word != -* ]]; then
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _notewriter notewriter
"""

Main = Callable[[list[str]], None]


def script(shell: str, commands: Mapping[str, tuple[Main, Sequence[str]]]) -> str:
    """The script that completes `notewriter`; each command has its main function and the words that may come first.

    Raises:
        UserError: there is no such shell.
    """
    beginning = choose("shell", shell, SHELLS)
    options, values = [], []
    for name, (main, subcommands) in commands.items():
        actions = [action for first in subcommands or [""] for action in actions_of(main, first)]
        spellings = {
            spelling: None for action in actions for spelling in action.option_strings if "-" not in spelling[2:]
        }
        options.append(_case(name, [*spellings]))
        values += [_case(f"{name} {name}", subcommands)] if subcommands else []
        for action in actions:
            choices = [str(choice) for choice in action.choices or ()] or ["true", "false"] * (action.const is True)
            if choices:
                pattern = "|".join(shlex.quote(f"{name} {spelling}") for spelling in action.option_strings)
                values.append(f"            {pattern}) words={shlex.quote(' '.join(choices))} ;;")
    return beginning + SCRIPT.format(
        commands=shlex.quote(" ".join(commands)),
        options="\n".join(options),
        values="\n".join(dict.fromkeys(values)),
    )


def actions_of(main: Main, first: str = "") -> list[argparse.Action]:
    """The options of a command, which shows them to whoever asks for help; `first` is a word before the options."""
    shown: list[argparse.Action] = []

    def record(parser: argparse.ArgumentParser) -> str:
        shown.extend(action for action in parser._actions if action.option_strings)
        return ""

    with (
        mock.patch.object(argparse.ArgumentParser, "format_help", record),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        main([*([first] if first else []), "--help"])
    return shown


def _case(pattern: str, words: Sequence[str]) -> str:
    return f"            {shlex.quote(pattern)}) words={shlex.quote(' '.join(words))} ;;"
