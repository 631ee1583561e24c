"""Configuration of every command: dataclasses filled from a YAML file and the command line (TRL's parser)."""

import argparse
import dataclasses
import difflib
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from trl.scripts.utils import TrlParser

from notewriter.errors import UserError
from notewriter.text import without_surrogates
from notewriter.typecheck import hints_of, may_be_empty, misfit, shown

SCALAR = str | int | float | bool
"""What a variable of the environment may be set to in a configuration file, under `env`."""


def parse(
    arguments: type | Sequence[type], argv: Sequence[str], *, prog: str | None = None, description: str | None = None
) -> tuple[Any, ...]:
    """Fill dataclasses from `--config FILE` and from overrides on the command line, which win.

    Returns one instance for each dataclass.

    Raises:
        UserError: a file that is not there or not YAML, a key or an option that does not exist, a
            value of the wrong type; names the file, the line and the nearest key that exists.
    """
    types = [arguments] if isinstance(arguments, type) else list(arguments)
    # Half an option's name would be taken for the option, and for another one as soon as there are two that begin so.
    parser: Any = TrlParser(types, prog=prog, description=description, allow_abbrev=False)  # type: ignore[arg-type]
    parser.formatter_class = _HelpFormatter
    _read_mappings_as_json(parser, types)
    parser.add_argument("--config", metavar="FILE", help="a YAML file with any of these options; the command line wins")
    # argparse would print its whole usage; the reader needs the one line that says what is wrong.
    parser.error = _raise
    argv = _split_equals(argv)
    if argv.count("--config") > 1:
        raise UserError("--config is given twice; name one file, and give what differs as options")
    if "--config" in argv:
        position = list(argv).index("--config") + 1
        if position == len(argv):
            raise UserError("--config: names no file; write --config FILE")
        hints = {name: hint for each in types for name, hint in hints_of(each).items()} | {"env": dict[str, SCALAR]}
        known = {action.dest for action in parser._actions} - {"config", "help"} | {"env"}
        _check_config(Path(argv[position]), known, hints)
    for option in (part.split("=", 1)[0] for part in argv if part.startswith("--") and " " not in part):
        if option not in parser._option_string_actions:
            raise UserError(f"unknown option {option}; {_nearest(option, parser._option_string_actions)}")
    try:
        parsed = parser.parse_args_and_config(argv)
    except (ValueError, TypeError, OverflowError) as error:
        # From TRL's classes, which look at their values when they are made.
        raise UserError(" ".join(str(error).split())) from error
    # The parser hands back a further namespace for `--config`, which is not one of the dataclasses.
    parsed = tuple(parsed[: len(types)])
    # A text in a file is taken as it is, also where the field is a list of them. TRL's classes see to their own fields.
    ours = [each for each in parsed if not _sees_to_itself(type(each))]
    for name in (action.dest for action in parser._actions if action.nargs == "+"):
        for each in ours:
            if not isinstance(value := getattr(each, name, None), list | None):
                setattr(each, name, [value])
    for each in ours:
        check(each)
    return parsed


def _sees_to_itself(kind: type) -> bool:
    """Whether a dataclass is one of TRL's, or made from one, and so checks its own fields."""
    return any(each.__module__.startswith(("trl.", "transformers.")) for each in kind.mro())


def check(arguments: Any) -> None:
    """Check that the values of a dataclass are what its annotations say.

    Raises:
        UserError: a value is of another type, out of its bounds or empty; names the option.
    """
    for name, hint in hints_of(type(arguments)).items():
        value = getattr(arguments, name)
        if problem := misfit(value, hint, name):
            raise UserError(problem)
        if problem := _unusable(value):
            raise UserError(f"{name} {problem}")
        # An empty path would be the current folder, and an empty name anything: most likely a variable was not set.
        if "" in (value if isinstance(value, list) else [value]) and not may_be_empty(hint):
            raise UserError(f"{name} is empty; give it a value, or leave it out")


def given(argv: Sequence[str]) -> dict[str, Any]:
    """The options of the file of `--config` and of the command line, as they stand there and not parsed.

    For a command whose options depend on one of them.

    Raises:
        UserError: the file cannot be read, or is no YAML of keys and values.
    """
    parts = [piece for part in argv for piece in (part.split("=", 1) if part.startswith("--") else [part])]
    options = {
        option.removeprefix("--"): value
        for option, value in itertools.pairwise([*parts, ""])
        if option.startswith("--")
    }
    return (_read(Path(options["config"]))[1] if options.get("config") else {}) | options


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Tells what is required, and the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.required:
            return f"{action.help} (required)"
        return action.help if action.default in (None, [], {}) else super()._get_help_string(action)


def _raise(message: str) -> NoReturn:
    raise UserError(f"{message}; see --help")


def _read_mappings_as_json(parser: Any, types: Sequence[type]) -> None:
    """Let a field that is a dictionary in YAML be given on the command line as a JSON object."""
    fields = {field.name: field for each in types for field in dataclasses.fields(each)}
    for action in parser._actions:
        field = fields.get(action.dest)
        if field is not None and str(field.type).startswith("dict["):
            action.type = _json_object


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        # The only error whose words argparse shows.
        raise argparse.ArgumentTypeError(f'{shown(text)} is not a JSON object; write it as \'{{"key": "value"}}\'')
    return value


def _split_equals(argv: Sequence[str]) -> list[str]:
    """`--config=FILE` as two arguments, which is all that TRL's parser understands."""
    return [part for item in argv for part in (item.split("=", 1) if item.startswith("--config=") else [item])]


def _read(path: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """The lines of a configuration file's keys, and the keys with their values."""
    try:
        text = path.read_text(encoding="utf-8")
        # Both are the safe loader: neither makes anything but plain data.
        root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
        config = yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path after --config") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise UserError(f"{path}: is not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: holds no keys; write one `key: value` a line")
    lines: dict[str, int] = {}
    for key, _ in root.value:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise UserError(f"{path}:{line}: {key.value} is there already, in line {lines[key.value]}; remove one")
        lines[key.value] = line
    return lines, config


def _nearest(name: str, known: Iterable[str]) -> str:
    """What may have been meant: what begins so, or else what is spelt alike."""
    longer = (each for each in known if each.startswith(name))
    # Of two spellings of an option the one with underscores, as in a file.
    near = sorted(longer, key=lambda each: (each.count("-"), each)) or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "see --help for what there is"


def _check_config(path: Path, known: set[str], hints: dict[str, Any]) -> None:
    lines, config = _read(path)
    for key, value in config.items():
        line = lines.get(str(key), 1)
        if key not in known:
            raise UserError(f"{path}:{line}: unknown key {key!r}; {_nearest(str(key), known)}")
        # The parser turns texts into what a field holds, as on the command line, and takes all else as it is.
        if problem := misfit(value, str if isinstance(value, str) else hints.get(key, Any), key):
            raise UserError(f"{path}:{line}: {problem}")
        if problem := _unusable(value):
            raise UserError(f"{path}:{line}: {key} {problem}")


def _unusable(value: Any) -> str:
    """What keeps the texts in a value from being paths or names, of which the system and libraries tell late."""
    if isinstance(value, dict):
        return next(filter(None, map(_unusable, (*value, *value.values()))), "")
    if isinstance(value, list | tuple):
        return next(filter(None, map(_unusable, value)), "")
    if not isinstance(value, str):
        return ""
    if "\0" in value:
        return "holds a NUL character; take it out"
    return "" if without_surrogates(value) == value else "is not UTF-8 text; rename what it names, or write it in UTF-8"


def to_yaml(*arguments: Any) -> str:
    """The resolved configuration as YAML, keys in the order of the dataclasses' fields."""
    merged: dict[str, Any] = {}
    for argument in arguments:
        merged |= dataclasses.asdict(argument)
    return yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)


def choose(kind: str, name: str, table: dict[str, Any]) -> Any:
    """The entry of a table, or an error that lists what there is.

    Raises:
        UserError: `name` is not in `table`.
    """
    if name not in table:
        raise UserError(f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(table))}")
    return table[name]
