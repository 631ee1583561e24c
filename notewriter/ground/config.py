"""Configuration of every command: dataclasses filled from a YAML file, the command line, or keywords of Python."""

import argparse
import dataclasses
import difflib
import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_args, overload

from notewriter.ground import plugins, recipes
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.options import defaults, names_in, names_of, places_in
from notewriter.ground.other_names import ours
from notewriter.ground.parser import LIBRARIES, PLUGINS, choices_of, parser_of
from notewriter.ground.plugins import Plugins, unknown
from notewriter.ground.text import without_surrogates
from notewriter.ground.typed import hints_of, may_be_empty, misfit
from notewriter.ground.yaml_files import read_mapping

SCALAR = str | int | float | bool
"""Allowed values of environment variables under `env` in a configuration file."""

UNFILLED = re.compile(r"\$(?:[A-Za-z_]\w*|\{[^}]*\})(?:/.*)?")
"""A path that begins with an environment variable, or such a variable alone."""

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Told(TypedDict, total=False):
    """The description of a command in `--help`."""

    prog: str | None
    description: str | None


@overload
def parse(arguments: type[A], argv: Sequence[str], **told: Unpack[Told]) -> tuple[A]: ...
@overload
def parse(arguments: tuple[type[A], type[B]], argv: Sequence[str], **told: Unpack[Told]) -> tuple[A, B]: ...
@overload
def parse(arguments: tuple[type[A], type[B], type[C]], argv: Sequence[str], **told: Unpack[Told]) -> tuple[A, B, C]: ...
@overload
def parse(arguments: Sequence[type], argv: Sequence[str], **told: Unpack[Told]) -> tuple[Any, ...]: ...
def parse(arguments: type | Sequence[type], argv: Sequence[str], **told: Unpack[Told]) -> tuple[Any, ...]:
    """Fill dataclasses from `--config FILE` and the command line, which takes precedence.

    Returns one instance per dataclass. Up to three in a tuple keep their types; a list does not.

    Raises:
        UserError: the file is missing or not YAML, a key or option is unknown, or a value has the
            wrong type; names the file, the line and the closest known key.
    """
    kinds = [arguments] if isinstance(arguments, type) else list(arguments)
    argv = _split_equals(argv)
    parser = parser_of(kinds, **told)
    actions = {spelling: action for action in parser._actions for spelling in action.option_strings}
    if argv.count("--config") > 1:
        raise UserError("--config is given twice; name one file and pass what differs as options")
    if argv[-1:] == ["--config"]:
        raise UserError("--config: the file is missing; write --config FILE")
    if "--config" in argv:
        config = _read_config(recipes.find(argv[argv.index("--config") + 1]), _hints_of(kinds), parser)
        if variables := config.pop("env", {}):
            os.environ.update({name: at_home(str(value)) for name, value in variables.items()})
            # They may be the defaults of options.
            parser = parser_of(kinds, **told)
        for action in (action for action in parser._actions if action.dest in config):
            action.default, action.required = config[action.dest], False
    options = [part.split("=", 1)[0] for part in argv if part.startswith("--") and " " not in part]
    if others := [option for option in dict.fromkeys(options) if option not in actions]:
        raise UserError("; ".join(f"unknown option {option}; {_nearest(option, actions)}" for option in others))
    for option in options:
        # The last one would silently replace the others.
        if actions[option].nargs == "+" and options.count(option) > 1:
            raise UserError(f"{option} is given twice; give all its values after one")
    values = vars(parser.parse_args(argv))
    for action in parser._actions:
        # A single string of the file stands for a list of one.
        if action.nargs == "+" and not isinstance(value := values[action.dest], list | None):
            values[action.dest] = [value]
    parsed = _checked(kinds, values)
    for place in names_in(values[PLUGINS]):
        plugins.load(place)
    return parsed


def _read_config(path: Path, hints: Mapping[str, Any], parser: argparse.ArgumentParser) -> dict[str, Any]:
    """A configuration file, whose keys are the options with these types, `env` and `plugins`.

    The parser converts texts as on the command line.
    """
    actions = {action.dest: action for action in reversed(parser._actions)}
    hints = {**hints, "env": dict[str, SCALAR], PLUGINS: list[str]}
    lines, config = read_mapping(path, hints=hints)
    if others := [key for key in config if key not in hints]:
        told = [f"{lines.get(str(key), 1)}: unknown key {key!r}; {_nearest(str(key), hints)}" for key in others]
        raise UserError(f"{path}:{'; line '.join(told)}")
    for key, value in config.items():
        try:
            # It does not refuse what is no choice.
            is_word = isinstance(value, str) and key in actions and not choices_of(hints[key])
            config[key] = _usable(key, value, str if is_word else hints[key])
            if is_word:
                config[key] = parser._get_value(actions[key], value)
        except UserError as error:
            raise UserError(f"{path}:{lines.get(str(key), 1)}: {error}") from error
        except argparse.ArgumentError as error:
            raise UserError(f"{path}:{lines.get(str(key), 1)}: {key}: {error.message}; see --help") from error
    return config


def from_keywords(kinds: Sequence[type], options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Fill dataclasses from keyword arguments, as `parse` does from a command line; a path may be a `Path`.

    Raises:
        UserError: an option is unknown or missing, or a value has the wrong type.
    """
    values = defaults(*kinds) | usable(kinds, options)
    for each in (each for kind in kinds for each in dataclasses.fields(kind)):
        if each.name not in values:
            raise UserError(f"{each.name} is missing; {each.metadata.get('help', 'give it a value')}")
    return _checked(kinds, values)


def usable(kinds: Sequence[type], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of dataclasses, each of its type: a single value may stand for a list of one, a `Path` for a path.

    Raises:
        UserError: an option is unknown, or a value has the wrong type.
    """
    hints, found = _hints_of(kinds), {}
    if others := [name for name in options if name not in hints]:
        raise UserError("; ".join(f"unknown option {name!r}; {_nearest(name, hints)}" for name in others))
    for name, value in options.items():
        found[name] = _usable(name, str(value) if isinstance(value, Path) else value, hints[name])
    return found


def _checked(kinds: Sequence[type], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """An instance of each dataclass, whose values fit, and the code that they name imported."""
    usual = defaults(*kinds)
    instances = filled(
        kinds, {name: each if each == usual.get(name) else at_home(each) for name, each in values.items()}
    )
    for instance in instances:
        # TRL's classes check their own fields.
        if not any(each.__module__.startswith(LIBRARIES) for each in type(instance).mro()):
            check(instance)
    for instance in instances:
        load_places(instance)
    return instances


def at_home(value: Any) -> Any:
    """A value whose paths in the user's home folder are written out: `~/models` that no shell has read."""
    if isinstance(value, dict):
        return {at_home(key): at_home(each) for key, each in value.items()}
    if isinstance(value, list):
        return [at_home(each) for each in value]
    # A text of another class stays one.
    return type(value)(os.path.expanduser(value)) if isinstance(value, str) and value.startswith("~/") else value


def load_places(arguments: object) -> None:
    """Import the objects whose places a user wrote as options of a command, and those alone (`plugins.load`).

    Raises:
        UserError: one cannot be imported.
    """
    for place in places_in(arguments):
        plugins.load(place)


def filled(kinds: Sequence[type], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """An instance of each dataclass, with the values of its options.

    Raises:
        UserError: a dataclass refuses them.
    """
    try:
        return tuple(kind(**{each.name: values[each.name] for each in dataclasses.fields(kind)}) for kind in kinds)
    except (ValueError, TypeError, OverflowError) as error:
        # Raised by TRL's classes, which validate themselves in __post_init__.
        raise UserError(one_line(error)) from error


def check(arguments: object) -> None:
    """Check the values of a dataclass against its annotations.

    Raises:
        UserError: a value has the wrong type, is out of bounds or is empty; names the option.
    """
    for name, hint in _hints_of([type(arguments)]).items():
        value = getattr(arguments, name)
        if problem := misfit(value, hint, name) or _unusable(name, value):
            raise UserError(problem)
        # An empty path would mean the current folder; most likely a shell variable was not set.
        if "" in (value if isinstance(value, list) else [value]) and not may_be_empty(hint):
            raise UserError(f"{name} is empty; give it a value or leave it out")


def _usable(name: str, value: Any, hint: Any) -> Any:
    """The value of an option from a file or a keyword; a single one may stand for a list of one.

    Raises:
        UserError: it has the wrong type, or cannot be a path or a name.
    """
    if (problem := misfit(value, hint, name)) and not misfit([value], hint):
        value, problem = [value], ""
    if problem := problem or _unusable(name, value):
        raise UserError(problem)
    return value


def _unusable(name: str, value: object) -> str:
    """The reason why a string in a value cannot be a path or a name, which the system would report much later."""
    if isinstance(value, dict | list | tuple):
        parts = (*value, *value.values()) if isinstance(value, dict) else value
        return next(filter(None, (_unusable(name, part) for part in parts)), "")
    if isinstance(value, str) and "\0" in value:
        return f"{name} contains a NUL character; remove it"
    if isinstance(value, str) and without_surrogates(value) != value:
        return f"{name} is not UTF-8; rename the file or write its name in UTF-8"
    if isinstance(value, str) and UNFILLED.fullmatch(value):
        # Without the value, which may be a misplaced secret.
        return f"{name} begins with a variable of the environment, which is not filled in here; write its value"
    return ""


def _hints_of(kinds: Iterable[type]) -> dict[str, Any]:
    """The types of all options of dataclasses; of an option whose field has `choices`, as some of TRL's, those."""
    hints = {name: hint for kind in kinds for name, hint in hints_of(kind).items()}
    for each in (each for kind in kinds for each in dataclasses.fields(kind)):
        if choices := each.metadata.get("choices"):
            hints[each.name] = Literal[(*choices, None) if NoneType in get_args(hints[each.name]) else tuple(choices)]
    return hints


def command_line(prog: str, argv: Sequence[str], *kinds: type) -> list[str]:
    """A command as a run records it: without the options of `kinds` that are secret."""
    secrets = [f"--{spelling}" for name in names_of(*kinds, secret=True) for spelling in (name, name.replace("_", "-"))]
    return [*prog.split(), *without_options(_split_equals(argv), secrets)]


def without_options(argv: Sequence[str], options: Collection[str]) -> list[str]:
    """Arguments without some options of one value; `options` are spelled as on the command line, such as `--model`."""
    return [
        word
        for before, word in itertools.pairwise(["", *argv])
        if before not in options and word.split("=", 1)[0] not in options
    ]


def given(argv: Sequence[str]) -> dict[str, Any]:
    """The options set in the `--config` file and on the command line, unparsed.

    For commands where the value of one option decides which others exist.

    Raises:
        UserError: the file cannot be read or is not a YAML mapping.
    """
    words = itertools.pairwise([*spelled(argv), ""])
    options = {word.removeprefix("--"): value for word, value in words if word.startswith("--")}
    return (read_mapping(recipes.find(options["config"]))[1] if options.get("config") else {}) | options


def spelled(argv: Sequence[str]) -> list[str]:
    """A command line with each option spelled as in YAML: `--output_dir x` for `--output-dir=x`."""
    parts = (word.split("=", 1) if word.startswith("--") else [word] for word in argv)
    return [
        part
        for name, *value in parts
        for part in (f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name, *value)
    ]


def _split_equals(argv: Sequence[str]) -> list[str]:
    """Split `--config=FILE` in two."""
    return [part for word in argv for part in (word.split("=", 1) if word.startswith("--config=") else [word])]


def _nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion: our name of another trainer's option, a known name with this prefix, or the most similar one."""
    known = list(known)
    if remedy := ours(name.removeprefix("--").replace("-", "_"), {each.removeprefix("--") for each in known}):
        return remedy
    longer = (each for each in known if each.startswith(name))
    # Of an option's two spellings prefer the one with underscores, as in YAML.
    near = sorted(longer, key=lambda each: (each.count("-"), each)) or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "see --help for the options"


def choose(kind: str, name: str, table: Mapping[str, A]) -> A:
    """Look up an entry of a table.

    Raises:
        UserError: `name` is not in `table`; lists the known names.
    """
    if isinstance(table, Plugins):
        entry: A = table.choose(kind, name)
        return entry
    if name not in table:
        raise UserError(unknown(kind, name, table))
    return table[name]
