"""Configuration of every command: dataclasses filled from a YAML file and the command line (TRL's parser)."""

import argparse
import copy
import dataclasses
import difflib
import itertools
import json
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, overload

import yaml
from trl.scripts.utils import TrlParser

from notewriter.ground import recipes
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.options import DEFAULTS, names_of
from notewriter.ground.plugins import Plugins
from notewriter.ground.text import without_surrogates
from notewriter.ground.typecheck import hints_of, may_be_empty, misfit, shown

SCALAR = str | int | float | bool
"""Allowed values of environment variables under `env` in a configuration file."""

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@overload
def parse(
    arguments: type[A], argv: Sequence[str], *, prog: str | None = None, description: str | None = None
) -> tuple[A]: ...
@overload
def parse(
    arguments: tuple[type[A], type[B]], argv: Sequence[str], *, prog: str | None = None, description: str | None = None
) -> tuple[A, B]: ...
@overload
def parse(
    arguments: tuple[type[A], type[B], type[C]],
    argv: Sequence[str],
    *,
    prog: str | None = None,
    description: str | None = None,
) -> tuple[A, B, C]: ...
@overload
def parse(
    arguments: Sequence[type], argv: Sequence[str], *, prog: str | None = None, description: str | None = None
) -> tuple[Any, ...]: ...
def parse(
    arguments: type | Sequence[type], argv: Sequence[str], *, prog: str | None = None, description: str | None = None
) -> tuple[Any, ...]:
    """Fill dataclasses from `--config FILE` and the command line, which takes precedence.

    Returns one instance per dataclass. Up to three in a tuple keep their types; a list does not.

    Raises:
        UserError: the file is missing or not YAML, a key or option is unknown, or a value has the
            wrong type; names the file, the line and the closest known key.
    """
    kinds = [arguments] if isinstance(arguments, type) else list(arguments)
    argv = _split_equals(argv)
    argv = [
        str(recipes.find(part)) if before == "--config" else part for before, part in itertools.pairwise(["", *argv])
    ]
    # An abbreviation would change its meaning as soon as a second option shares the prefix.
    parser: Any = _Parser(kinds, prog=prog, description=description, allow_abbrev=False)  # type: ignore[arg-type]
    parser.formatter_class = _HelpFormatter
    _read_mappings_as_json(parser, kinds)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a YAML file with any of these options, which override it, or the name of one of `notewriter recipes`",
    )
    # argparse would print the whole usage; one line that says what is wrong is enough.
    parser.error = _raise
    if argv.count("--config") > 1:
        raise UserError("--config is given twice; name one file and pass what differs as options")
    if "--config" in argv:
        position = list(argv).index("--config") + 1
        if position == len(argv):
            raise UserError("--config: the file is missing; write --config FILE")
        hints = {name: hint for each in kinds for name, hint in hints_of(each).items()} | {"env": dict[str, SCALAR]}
        known = {action.dest for action in parser._actions} - {"config", "help"} | {"env"}
        _check_config(Path(argv[position]), known, hints)
    given_options = [part.split("=", 1)[0] for part in argv if part.startswith("--") and " " not in part]
    for option in given_options:
        action = parser._option_string_actions.get(option)
        # The last one would silently replace the others.
        if action is not None and action.nargs == "+" and given_options.count(option) > 1:
            raise UserError(f"{option} is given twice; give all its values after one")
        if option not in parser._option_string_actions:
            raise UserError(f"unknown option {option}; {_nearest(option, parser._option_string_actions)}")
    try:
        parsed = parser.parse_args_and_config(argv)
    except (ValueError, TypeError, OverflowError) as error:
        # Raised by TRL's classes, which validate themselves in __post_init__.
        raise UserError(one_line(error)) from error
    # The parser also returns a namespace for `--config`, which is not one of the dataclasses.
    parsed = tuple(parsed[: len(kinds)])
    # In YAML a single string or mapping may stand for a list of one. TRL's classes normalise their own fields.
    ours = [each for each in parsed if not _is_of_trl(type(each))]
    for name in (action.dest for action in parser._actions if action.nargs == "+"):
        for each in ours:
            if not isinstance(value := getattr(each, name, None), list | None):
                setattr(each, name, [value])
    for each in ours:
        check(each)
    return parsed


def command_line(prog: str, argv: Sequence[str], *kinds: type) -> list[str]:
    """A command as a run records it: without the options of `kinds` that are secret."""
    secrets = [f"--{spelling}" for name in names_of(*kinds, secret=True) for spelling in (name, name.replace("_", "-"))]
    return [*prog.split(), *without_options(_split_equals(argv), secrets)]


def _is_of_trl(kind: type) -> bool:
    """Whether a dataclass is, or derives from, one of TRL's, which validate their own fields."""
    return any(each.__module__.startswith(("trl.", "transformers.")) for each in kind.mro())


def check(arguments: object) -> None:
    """Check the values of a dataclass against its annotations.

    Raises:
        UserError: a value has the wrong type, is out of bounds or is empty; names the option.
    """
    for name, hint in hints_of(type(arguments)).items():
        value = getattr(arguments, name)
        if problem := misfit(value, hint, name):
            raise UserError(problem)
        if problem := _unusable(value):
            raise UserError(f"{name} {problem}")
        # An empty path would mean the current folder; most likely a shell variable was not set.
        if "" in (value if isinstance(value, list) else [value]) and not may_be_empty(hint):
            raise UserError(f"{name} is empty; give it a value or leave it out")


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
    parts = [piece for part in argv for piece in (part.split("=", 1) if part.startswith("--") else [part])]
    options = {
        option.removeprefix("--"): value
        for option, value in itertools.pairwise([*parts, ""])
        if option.startswith("--")
    }
    return (read_mapping(recipes.find(options["config"]))[1] if options.get("config") else {}) | options


class _Parser(TrlParser):
    """TRL's parser, which passes all of a field's metadata to argparse, without what `options` reads."""

    @staticmethod
    def _parse_dataclass_field(parser: argparse.ArgumentParser, field: dataclasses.Field[Any]) -> None:
        field = copy.copy(field)
        field.metadata = types.MappingProxyType({k: v for k, v in field.metadata.items() if k not in DEFAULTS})
        TrlParser._parse_dataclass_field(parser, field)


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Tells what is required, and the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.required:
            return f"{action.help} (required)"
        return action.help if action.default in (None, [], {}) else super()._get_help_string(action)


def _raise(message: str) -> NoReturn:
    raise UserError(f"{message}; see --help")


def _read_mappings_as_json(parser: Any, types: Sequence[type]) -> None:
    """Accept dictionary fields as JSON objects on the command line."""
    fields = {field.name: field for each in types for field in dataclasses.fields(each)}
    for action in parser._actions:
        field = fields.get(action.dest)
        if field is not None and str(field.type).startswith(("dict[", "list[dict[")):
            action.type = _json_object


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        # The only exception whose message argparse shows.
        raise argparse.ArgumentTypeError(f'{shown(text)} is not a JSON object; write it as \'{{"key": "value"}}\'')
    return value


def _split_equals(argv: Sequence[str]) -> list[str]:
    """Split `--config=FILE` in two, the only form TRL's parser understands."""
    return [part for item in argv for part in (item.split("=", 1) if item.startswith("--config=") else [item])]


class _Loader(yaml.SafeLoader):
    """Constructs plain data only; a value that does not suit its tag is a YAML error with its place."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            what = f"{shown(node.value)} is no {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from error


def load_yaml(text: str) -> Any:
    """The plain data in a YAML text.

    Raises:
        yaml.YAMLError: it is not YAML, is nested too deeply, or has a value that does not suit its tag.
    """
    try:
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error


def read_mapping(path: Path, remedy: str = "check the path after --config") -> tuple[dict[str, int], dict[str, Any]]:
    """The line number of each key of a YAML file, and the parsed mapping.

    Raises:
        UserError: the file cannot be read (ends with `remedy`), is not a YAML mapping, or repeats a key.
    """
    try:
        text = path.read_text(encoding="utf-8")
        config = load_yaml(text)
        root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not YAML ({one_line(error)})") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: is not a mapping; write one `key: value` per line")
    _check_keys(root, path)
    return {key.value: key.start_mark.line + 1 for key, _ in root.value}, config


def _check_keys(root: Any, path: Path) -> None:
    """Refuse a key that a mapping has twice, however deep the mapping is; only the last one would count."""
    nodes, seen = [root], set[int]()
    while nodes:
        # An alias may stand for a node that contains it.
        if id(node := nodes.pop()) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if key.value in lines:
                    first = lines[key.value]
                    raise UserError(f"{path}:{line}: duplicate key {key.value!r} (see line {first}); remove one")
                lines[key.value] = line
                nodes.append(value)


def check_mapping(content: Any, kind: Any, place: str) -> None:
    """Check the mapping of a YAML file, or a part of it, against a dataclass.

    Raises:
        UserError: a key is missing or unknown, or a value has the wrong type.
    """
    if problem := misfit(content, kind, place):
        raise UserError(problem)
    known = [each.name for each in dataclasses.fields(kind)]
    if unknown := [key for key in content if key not in known]:
        raise UserError(f"{place}: unknown key {unknown[0]!r}; known are: {', '.join(known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion: a known name with this prefix, or else the most similar one."""
    longer = (each for each in known if each.startswith(name))
    # Of an option's two spellings prefer the one with underscores, as in YAML.
    near = sorted(longer, key=lambda each: (each.count("-"), each)) or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "see --help for the options"


def _check_config(path: Path, known: set[str], hints: dict[str, Any]) -> None:
    lines, config = read_mapping(path)
    for key, value in config.items():
        line = lines.get(str(key), 1)
        if key not in known:
            raise UserError(f"{path}:{line}: unknown key {key!r}; {_nearest(str(key), known)}")
        hint = hints.get(key, Any)
        # The parser converts strings as on the command line and leaves other values unchanged.
        if isinstance(value, str):
            hint = str
        elif isinstance(value, dict) and not misfit([value], hint):
            value = [value]
        if problem := misfit(value, hint, key):
            raise UserError(f"{path}:{line}: {problem}")
        if problem := _unusable(value):
            raise UserError(f"{path}:{line}: {key} {problem}")


def _unusable(value: object) -> str:
    """Why a string in a value cannot be a path or name; the system would only report it much later."""
    if isinstance(value, dict):
        return next(filter(None, map(_unusable, (*value, *value.values()))), "")
    if isinstance(value, list | tuple):
        return next(filter(None, map(_unusable, value)), "")
    if not isinstance(value, str):
        return ""
    if "\0" in value:
        return "contains a NUL character; remove it"
    return "" if without_surrogates(value) == value else "is not UTF-8; rename the file or write its name in UTF-8"


def to_yaml(*arguments: Any) -> str:
    """The resolved configuration as YAML, keys in field order."""
    merged: dict[str, Any] = {}
    for argument in arguments:
        merged |= dataclasses.asdict(argument)
    return yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)


def choose(kind: str, name: str, table: Mapping[str, A]) -> A:
    """Look up an entry of a table.

    Raises:
        UserError: `name` is not in `table`; lists the known names.
    """
    if isinstance(table, Plugins):
        entry: A = table.choose(kind, name)
        return entry
    if name not in table:
        raise UserError(f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(table))}")
    return table[name]
