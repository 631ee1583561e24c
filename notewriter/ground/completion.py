"""Completion of commands and options in bash and zsh: a script made of the parsers of the commands themselves."""

import argparse
import contextlib
import io
import shlex
from collections.abc import Callable, Mapping, Sequence

from notewriter.ground.config import choose
from notewriter.ground.parser import ASKED

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
        [[ $COMP_CWORD -gt 3 && {parts} == *",$command ${{COMP_WORDS[2]}},"* ]] && command="$command ${{COMP_WORDS[2]}}"
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


def script(shell: str, mains: Mapping[str, Main]) -> str:
    """The script that completes `notewriter`.

    Args:
        shell: bash or zsh.
        mains: the function of each command, and of each of its parts by command and word, such as `train dpo`.

    Raises:
        UserError: there is no such shell.
    """
    beginning = choose("shell", shell, SHELLS)
    words: dict[str, list[str]] = {}
    spellings: dict[str, dict[str, None]] = {}
    values = []
    for command, main in mains.items():
        name, *part = command.split()
        words.setdefault(name, []).extend(part)
        for action in actions_of(main):
            shown = (spelling for spelling in action.option_strings if "-" not in spelling[2:])
            spellings.setdefault(name, {}).update(dict.fromkeys(shown))
            # One of two trainings may take other values of an option than the other.
            if choices := _choices(action):
                pattern = "|".join(shlex.quote(f"{command} {spelling}") for spelling in action.option_strings)
                values.append(f"            {pattern}) words={shlex.quote(' '.join(choices))} ;;")
    firsts = [_case(f"{name} {name}", parts) for name, parts in words.items() if parts]
    return beginning + SCRIPT.format(
        commands=shlex.quote(" ".join(words)),
        options="\n".join(_case(name, [*each]) for name, each in spellings.items()),
        parts=shlex.quote(f",{','.join(mains)},"),
        values="\n".join(dict.fromkeys([*firsts, *values])),
    )


def _choices(action: argparse.Action) -> list[str]:
    """The values that an option takes; for names that packages may add to, all names."""
    if plugins := vars(action).get("plugins"):
        return [*plugins, *plugins.from_packages()]
    return [str(choice) for choice in action.choices or ()] or ["true", "false"] * (action.const is True)


def actions_of(main: Main) -> list[argparse.Action]:
    """The options of a command, taken from its help."""
    shown: list[argparse.Action] = []
    before = ASKED.set(shown)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main(["--help"])
    finally:
        ASKED.reset(before)
    return shown


def _case(pattern: str, words: Sequence[str]) -> str:
    return f"            {shlex.quote(pattern)}) words={shlex.quote(' '.join(words))} ;;"
