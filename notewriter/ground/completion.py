"""Completion of commands and options in bash and zsh: a script made of the parsers of the commands themselves."""

import argparse
import contextlib
import io
import shlex
from collections.abc import Callable, Mapping, Sequence

from notewriter.ground.config import ASKED, choose

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
        [[ $COMP_CWORD -gt 3 && " {nested} " == *" $command "* ]] && command="$command ${{COMP_WORDS[2]}}"
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
        by_first = {first: actions_of(main, first) for first in subcommands or [""]}
        actions = [action for each in by_first.values() for action in each]
        spellings = {
            spelling: None for action in actions for spelling in action.option_strings if "-" not in spelling[2:]
        }
        options.append(_case(name, [*spellings]))
        values += [_case(f"{name} {name}", subcommands)] if subcommands else []
        for first, shown in by_first.items():
            # One of two trainings may take other values of an option than the other.
            command = f"{name} {first}".strip()
            for action in shown:
                if choices := _choices(action):
                    pattern = "|".join(shlex.quote(f"{command} {spelling}") for spelling in action.option_strings)
                    values.append(f"            {pattern}) words={shlex.quote(' '.join(choices))} ;;")
    return beginning + SCRIPT.format(
        commands=shlex.quote(" ".join(commands)),
        options="\n".join(options),
        nested=" ".join(name for name, (_, subcommands) in commands.items() if subcommands),
        values="\n".join(dict.fromkeys(values)),
    )


def _choices(action: argparse.Action) -> list[str]:
    """The values that an option takes; of one that names what packages may add, all names."""
    if plugins := vars(action).get("plugins"):
        return [*plugins, *plugins.from_packages()]
    return [str(choice) for choice in action.choices or ()] or ["true", "false"] * (action.const is True)


def actions_of(main: Main, first: str = "") -> list[argparse.Action]:
    """The options of a command, which shows them to whoever asks for help; `first` is a word before the options."""
    shown: list[argparse.Action] = []
    before = ASKED.set(shown)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main([*([first] if first else []), "--help"])
    finally:
        ASKED.reset(before)
    return shown


def _case(pattern: str, words: Sequence[str]) -> str:
    return f"            {shlex.quote(pattern)}) words={shlex.quote(' '.join(words))} ;;"
