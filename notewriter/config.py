"""Configuration of every command: dataclasses filled from a YAML file and the command line (TRL's parser)."""

import argparse
import dataclasses
import difflib
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

import yaml
from trl.scripts.utils import TrlParser

from notewriter.errors import UserError


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
    parser: Any = TrlParser(types, prog=prog, description=description)  # type: ignore[arg-type]
    parser.formatter_class = _HelpFormatter
    _read_mappings_as_json(parser, types)
    parser.add_argument("--config", metavar="FILE", help="a YAML file with any of these options; the command line wins")
    # argparse would print its whole usage; the reader needs the one line that says what is wrong.
    parser.error = _raise
    argv = _split_equals(argv)
    if "--config" in argv:
        position = list(argv).index("--config") + 1
        if position == len(argv):
            raise UserError("--config: names no file; write --config FILE")
        hints = {name: hint for each in types for name, hint in get_type_hints(each).items()}
        _check_config(Path(argv[position]), {action.dest for action in parser._actions} | {"env"}, hints)
    try:
        parsed = parser.parse_args_and_config(argv)
    except ValueError as error:
        raise UserError(str(error)) from error
    # The parser hands back a further namespace for `--config`, which is not one of the dataclasses.
    parsed = tuple(parsed[: len(types)])
    # A text in a file is taken as it is, also where the field is a list of them. TRL's classes see to their own fields.
    for name in (action.dest for action in parser._actions if action.nargs == "+"):
        for each in parsed:
            if not hasattr(each, "__post_init__") and not isinstance(value := getattr(each, name, None), list | None):
                setattr(each, name, [value])
    return parsed


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
    except ValueError:
        value = None
    if not isinstance(value, dict):
        # The only error whose words argparse shows.
        raise argparse.ArgumentTypeError(f'{text!r} is not a JSON object; write it as \'{{"key": "value"}}\'')
    return value


def _split_equals(argv: Sequence[str]) -> list[str]:
    """`--config=FILE` as two arguments, which is all that TRL's parser understands."""
    return [part for item in argv for part in (item.split("=", 1) if item.startswith("--config=") else [item])]


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a configuration file, and its keys with their values."""
    try:
        text = path.read_text(encoding="utf-8")
        config = yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path after --config") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: holds no keys; write one `key: value` a line")
    return text, config


def _check_config(path: Path, known: set[str], hints: dict[str, Any]) -> None:
    text, config = _read(path)
    for key, value in config.items():
        match = re.search(rf"^[\"']?{re.escape(str(key))}[\"']?\s*:", text, re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1 if match else 1
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "see --help for the keys there are"
            raise UserError(f"{path}:{line}: unknown key {key!r}; {remedy}")
        # The parser turns texts into what a field holds, as on the command line, and takes all else as it is.
        if not isinstance(value, str) and not _fits(value, hints.get(key, Any)):
            raise UserError(f"{path}:{line}: {key} must be {_name(hints[key])}, not {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from YAML is of the annotated type, as far as that is made of the types that YAML has."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if kind is list and isinstance(value, list):
        return all(_fits(part, *get_args(hint)) for part in value) if get_args(hint) else True
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, (int, float))
    return kind not in (bool, int, str, list, dict, NoneType) or isinstance(value, kind)


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


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
