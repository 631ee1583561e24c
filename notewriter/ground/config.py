"""Configuration of every command: dataclasses filled from a YAML file and the command line."""

import argparse
import contextlib
import dataclasses
import difflib
import functools
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import yaml

from notewriter.ground import plugins, recipes, typed
from notewriter.ground.annotations import hints_of, may_be_empty
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.options import DEFAULTS, names_in, names_of, places_in
from notewriter.ground.other_names import ours
from notewriter.ground.plugins import Plugins, unknown
from notewriter.ground.text import without_surrogates
from notewriter.ground.typed import misfit, shown

SCALAR = str | int | float | bool
"""Allowed values of environment variables under `env` in a configuration file."""

PLUGINS = "plugins"
"""The option of every command that names code to import."""

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
    parser = parser_of(kinds, prog, description)
    actions = {spelling: action for action in parser._actions for spelling in action.option_strings}
    if argv.count("--config") > 1:
        raise UserError("--config is given twice; name one file and pass what differs as options")
    if "--config" in argv:
        position = list(argv).index("--config") + 1
        if position == len(argv):
            raise UserError("--config: the file is missing; write --config FILE")
        hints = _hints_of(kinds) | {"env": dict[str, SCALAR], PLUGINS: list[str]}
        _set_defaults(parser, _read_config(Path(argv[position]), hints))
    options = [part.split("=", 1)[0] for part in argv if part.startswith("--") and " " not in part]
    for option in options:
        if option not in actions:
            raise UserError(f"unknown option {option}; {_nearest(option, actions)}")
        # The last one would silently replace the others.
        if actions[option].nargs == "+" and options.count(option) > 1:
            raise UserError(f"{option} is given twice; give all its values after one")
    values = vars(parser.parse_args(argv))
    parsed = filled(kinds, values)
    # TRL's classes normalise their own fields.
    for arguments in (each for each in parsed if not _is_of_trl(type(each))):
        for action in parser._actions:
            # In YAML a single string or mapping may stand for a list of one.
            if action.nargs == "+" and not isinstance(value := getattr(arguments, action.dest, None), list | None):
                setattr(arguments, action.dest, [value])
        check(arguments)
    for arguments in parsed:
        load_places(arguments)
    for place in names_in(values[PLUGINS]):
        plugins.load(place)
    return parsed


def from_keywords(kinds: Sequence[type], options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Fill dataclasses from keyword arguments, as `parse` does from a command line; a path may be a `Path`.

    Raises:
        UserError: an option is unknown or missing, or a value has the wrong type.
    """
    hints = _hints_of(kinds)
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in hints:
            raise UserError(f"unknown option {name!r}; {_nearest(name, hints)}")
        value = str(value) if isinstance(value, Path) else value
        # As in YAML, a single string or mapping may stand for a list of one.
        is_one = misfit(value, hints[name]) and not misfit([value], hints[name])
        values[name] = [value] if is_one else value
    instances = []
    for kind in kinds:
        own = {each.name: each for each in dataclasses.fields(kind)}
        for name, each in own.items():
            if name not in values and each.default is each.default_factory is dataclasses.MISSING:
                raise UserError(f"{name} is missing; {each.metadata.get('help', 'give it a value')}")
        instances.append(kind(**{name: values[name] for name in own if name in values}))
        check(instances[-1])
    for instance in instances:
        load_places(instance)
    return tuple(instances)


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
    for name, hint in _hints_of([type(arguments)]).items():
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


ASKED: ContextVar[list[argparse.Action]] = ContextVar("ASKED")
"""Where a parser puts its options in the place of its help, for completion."""


class Parser(argparse.ArgumentParser):
    """The parser of a command's options."""

    def format_help(self) -> str:
        """The text of `--help`; empty where the options themselves are asked for."""
        if (shown := ASKED.get(None)) is None:
            return super().format_help()
        shown.extend(action for action in self._actions if action.option_strings)
        return ""

    def error(self, message: str) -> NoReturn:
        """One line that says what is wrong, where argparse would print the whole usage too."""
        raise UserError(f"{message}; see --help")


def parser_of(
    kinds: Sequence[type], prog: str | None = None, description: str | None = None
) -> argparse.ArgumentParser:
    """A parser with the options of dataclasses, and `--config`."""
    # An abbreviation would change its meaning as soon as a second option shares the prefix.
    parser = Parser(prog, description=description, allow_abbrev=False, formatter_class=_HelpFormatter)
    for kind in kinds:
        hints = get_type_hints(kind)
        for option in dataclasses.fields(kind):
            _add_option(parser, option, hints[option.name])
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a YAML file with any of these options, which override it, or the name of one that `fetch recipe` lists",
    )
    parser.add_argument(
        f"--{PLUGINS}",
        metavar="FILE:OBJECT",
        nargs="+",
        default=[],
        help="import these (file.py:object or module:object), whose names folders that are read may have recorded; "
        "what a folder alone names is not imported",
    )
    return parser


def _add_option(parser: argparse.ArgumentParser, option: dataclasses.Field[Any], hint: Any) -> None:
    """Add the option of a field, as transformers' `HfArgumentParser` does, but for mappings, which are JSON.

    That of `a_b` is spelled `--a_b` or `--a-b`; a switch that is on by default has a second one, `--no_a_b`.
    """
    settings = {key: value for key, value in option.metadata.items() if key not in DEFAULTS}
    if option.default_factory is not dataclasses.MISSING:
        settings["default"] = option.default_factory()
    elif option.default is not dataclasses.MISSING:
        settings["default"] = option.default
    else:
        settings["required"] = True
    kind = _given_as(hint)
    if kind in (bool, bool | None):
        settings["type"] = _truth
        if settings.setdefault("default", False) is not None:
            # `--a_b` alone switches it on.
            settings |= {"nargs": "?", "const": True, "required": False}
    elif choices := _choices(kind):
        settings |= {"choices": choices, "type": functools.partial(_choice, choices)}
        if any(choice is True for choice in choices):
            # `--a_b` alone switches it on.
            settings |= {"nargs": "?", "const": True, "metavar": f"{{{','.join(map(str, choices)).lower()}}}"}
    elif get_origin(kind) is list:
        # Of TRL's, some have a default that is no list; they take None for it.
        default = None if isinstance(settings.get("default"), str) else settings.get("default")
        settings |= {"type": _converter(get_args(kind)[0]), "nargs": "+", "default": default}
    else:
        settings["type"] = _converter(kind, optional=kind is not str and NoneType in get_args(hint))
    action = parser.add_argument(*_spellings(option.name), dest=option.name, **settings)
    vars(action)["plugins"] = option.metadata.get("plugins")
    if kind in (bool, bool | None) and option.default is True:
        off = _spellings(f"no_{option.name}")
        parser.add_argument(*off, dest=option.name, action="store_false", default=False, help=settings.get("help"))


def _converter(kind: Any, *, optional: bool = False) -> Callable[[str], Any]:
    """What makes a value of a word on the command line; of an optional one, `none` and `null` are None."""
    if get_origin(kind) is dict:
        return _json_object

    def convert(text: str) -> Any:
        return None if optional and text.lower() in ("none", "null") else kind(text)

    # argparse names it in errors.
    convert.__name__ = kind.__name__
    return convert


def _spellings(name: str) -> list[str]:
    return list(dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"]))


def _given_as(hint: Any) -> Any:
    """The member of a union that a word on the command line becomes."""
    if get_origin(hint) not in (Union, UnionType) or hint == bool | None:
        return hint
    first, second, *_ = get_args(hint)
    return first if second is NoneType or (second is str and NoneType not in get_args(hint)) else second


def _hints_of(kinds: Iterable[type]) -> dict[str, Any]:
    """The types of all options of dataclasses; of an option whose field has `choices`, as some of TRL's, those."""
    hints = {name: hint for kind in kinds for name, hint in hints_of(kind).items()}
    for each in (each for kind in kinds for each in dataclasses.fields(kind)):
        if choices := each.metadata.get("choices"):
            hints[each.name] = Literal[(*choices, *([None] if NoneType in get_args(hints[each.name]) else []))]
    return hints


def _choices(kind: Any) -> list[Any]:
    """The values of a literal or an enumeration; none for other types."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [each.value for each in kind]
    return list(get_args(kind)) if get_origin(kind) is Literal else []


def _choice(choices: list[Any], text: str) -> Any:
    """The choice that a word on the command line names; true and false may be among them, in any of their spellings."""
    if any(choice is True for choice in choices):
        with contextlib.suppress(argparse.ArgumentTypeError):
            return _truth(text)
    return {str(choice): choice for choice in choices}.get(text, text)


def _truth(text: str) -> bool:
    if text.lower() in ("yes", "true", "t", "y", "1"):
        return True
    if text.lower() in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{shown(text)} is neither true nor false")


def _set_defaults(parser: argparse.ArgumentParser, config: dict[str, Any]) -> None:
    """Let a configuration stand in for options that are not given; those under `env` become environment variables."""
    os.environ.update({name: str(value) for name, value in config.pop("env", {}).items()})
    for action in parser._actions:
        if action.dest in config:
            # The parser converts strings as on the command line and leaves other values unchanged.
            action.default, action.required = config[action.dest], False


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Tells what is required, and the defaults that say something; keeps paragraphs and indented commands."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = text.strip("\n").split("\n\n")
        filled = [
            block
            if block.startswith((" ", "|", "- "))
            else super(_HelpFormatter, self)._fill_text(block, width, indent)
            for block in blocks
        ]
        return "\n\n".join(filled)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        plugins = vars(action).get("plugins")
        installed = f"; installed: {', '.join(plugins.from_packages())}" if plugins and plugins.from_packages() else ""
        if action.required:
            return f"{action.help}{installed} (required)"
        shown = action.help if action.default in (None, [], {}) else super()._get_help_string(action)
        return shown and shown + installed


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        # The only exception whose message argparse shows.
        raise argparse.ArgumentTypeError(
            f'{shown(text)} is not a JSON object; write it as \'{{"key": "value"}}\', several one after another'
        )
    return value


def _split_equals(argv: Sequence[str]) -> list[str]:
    """Split `--config=FILE` in two."""
    return [part for item in argv for part in (item.split("=", 1) if item.startswith("--config=") else [item])]


MOST_REPEATED = 1_000_000
"""Characters that the aliases of a YAML text may add to those that are written in it."""

LONGEST_NUMBER = 100
"""Characters of a number in YAML; reading one of base 60 takes time that grows with the square of its length."""

_YAML = "tag:yaml.org,2002:"

CHANGED = {
    f"{_YAML}bool": (r"(?i:yes|no|on|off)", "a truth value"),
    f"{_YAML}int": (r"[-+]?0[0-9_]+|.*:.*", "an octal number, or one in sixties"),
    f"{_YAML}float": (r".*:.*", "a number in sixties"),
    f"{_YAML}timestamp": (r".*", "a date"),
    f"{_YAML}str": (r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+", "a text"),
}
"""Plain words that YAML 1.1 takes for something that few mean by them, by the type that it gives them."""


class _Refused(yaml.MarkedYAMLError):
    """YAML that would be read otherwise than it was meant: a key twice, or a word that YAML changes."""


class _Loader(yaml.SafeLoader):
    """Constructs plain data only; a repeated key or a value that does not suit its tag is an error with its place."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._meant = set[int]()

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in lines:
                what = f"duplicate key {key.value!r} (see line {lines[key.value]}); remove one"
                raise _Refused(problem=what, problem_mark=key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            what = f"{shown(node.value)} is no {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from error

    def mean(self, node: Any, hint: Any, key: str) -> None:
        """Give the plain words of a value that YAML changes (`CHANGED`) the type that the option has.

        A number with an exponent is a number. Where the type is not known, the other words are refused.
        """
        if id(node) in self._meant:
            return
        self._meant.add(id(node))
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType, Annotated) else (hint,)
        if isinstance(node, yaml.SequenceNode):
            items = next((get_args(kind)[0] for kind in kinds if get_origin(kind) is list), Any)
            for each in node.value:
                self.mean(each, items, key)
        elif isinstance(node, yaml.MappingNode):
            # A single mapping may stand for a list of one.
            mappings = [part for kind in kinds for part in (kind, *get_args(kind)) if get_origin(part) is dict]
            for name, value in node.value:
                self.mean(name, str, key)
                self.mean(value, get_args(mappings[0])[1] if mappings else Any, f"{key}: {name.value}")
        elif node.style is None and node.tag == self.resolve(yaml.ScalarNode, node.value, (True, False)):  # type: ignore[no-untyped-call]
            pattern, taken_for = CHANGED.get(node.tag, ("", ""))
            if re.fullmatch(pattern, node.value) and node.value:
                self._mean_word(node, hint, kinds, f"{key}: YAML takes {node.value} for {taken_for}")

    def _mean_word(self, node: yaml.ScalarNode, hint: Any, kinds: Sequence[Any], what: str) -> None:
        names = [name for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum) for name in _choices(kind)]
        known = Literal[tuple(names)] if names else hint
        for kind, value in _readings(node.value):
            if (kind == "float" and node.tag == f"{_YAML}str") if hint is Any else not misfit(value, known):
                node.tag, node.value = f"{_YAML}{kind}", str(value)
                return
        if node.tag == f"{_YAML}str":
            # What is wrong with the number is said where the option's type is checked.
            node.tag = f"{_YAML}float"
            return
        what = f'{what}; quote it ("{node.value}"), or write what is meant'
        raise _Refused(problem=what, problem_mark=node.start_mark)


def load_yaml(text: str) -> Any:
    """The plain data in a YAML text.

    Raises:
        yaml.YAMLError: it is not YAML, is nested too deeply, repeats a key, has a value that does not suit its tag, or
            stands for far more than is written in it (`MOST_REPEATED`).
    """
    return _load(text)[1]


def _load(text: str, hints: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """The root node of a YAML text, None where it is empty, and its data, with the types of its keys as was meant."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is not None:
            _check_aliases(root)
        if isinstance(root, yaml.MappingNode) and hints is not None:
            for key, value in root.value:
                loader.mean(value, hints.get(key.value, Any), key.value)
        return root, None if root is None else loader.construct_document(root)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error


def _readings(word: str) -> Iterator[tuple[str, Any]]:
    """What a plain word may mean, in the order in which an option's type is asked."""
    yield "str", word
    if word.lower() in ("yes", "no", "on", "off"):
        yield "bool", word.lower() in ("yes", "on")
    with contextlib.suppress(ValueError):
        number = float(word)
        if number.is_integer():
            yield "int", int(number)
        yield "float", number


def _check_aliases(root: yaml.Node) -> None:
    """Check how much a text stands for once each alias is replaced by what it names, which can grow with every line.

    Raises:
        yaml.YAMLError: far more than is written in it, a value that contains itself, or a number too long to be read.
    """
    sizes: dict[yaml.Node, int] = {}
    written, inside = 0, set[yaml.Node]()

    def size(node: yaml.Node) -> int:
        nonlocal written
        if node in inside:
            raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a value contains itself; write it out")
        if node not in sizes:
            inside.add(node)
            if node.tag.endswith((":int", ":float")) and len(node.value) > LONGEST_NUMBER:
                kind = node.tag.rpartition(":")[2]
                raise yaml.YAMLError(
                    f"line {node.start_mark.line + 1}: {shown(node.value)} is no {kind}, it is too long"
                )
            own = 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
            sizes[node] = own + sum(map(size, _children(node)))
            written += own
            inside.remove(node)
        return sizes[node]

    if size(root) - written > MOST_REPEATED:
        raise yaml.YAMLError(
            f"its aliases (*name) make more than {MOST_REPEATED:,} characters of {written:,}; write the values out"
        )


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return itertools.chain(*node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def read_mapping(
    path: Path, remedy: str = "check the path after --config", hints: Mapping[str, Any] | None = None
) -> tuple[dict[str, int], dict[str, Any]]:
    """The line number of each key of a YAML file, and the parsed mapping.

    Args:
        path: the file.
        remedy: what to do if it cannot be read.
        hints: the types of its keys, by which words are read that YAML would change; None leaves them to YAML.

    Raises:
        UserError: the file cannot be read (ends with `remedy`), is not a YAML mapping, repeats a key, or has a word
            that YAML would change and whose type is not known.
    """
    try:
        root, config = _load(path.read_text(encoding="utf-8"), hints)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
    except _Refused as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{path}:{line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not YAML ({one_line(error)})") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: is not a mapping; write one `key: value` per line")
    return {key.value: key.start_mark.line + 1 for key, _ in root.value}, config


def check_mapping(content: Any, kind: Any, place: str) -> None:
    """Check the mapping of a YAML file, or a part of it, against a dataclass.

    Raises:
        UserError: a key is missing or unknown, or a value has the wrong type.
    """
    typed.read(content, kind, place)
    known = [each.name for each in dataclasses.fields(kind)]
    if unknown := [key for key in content if key not in known]:
        raise UserError(f"{place}: unknown key {unknown[0]!r}; known are: {', '.join(known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion: what another trainer's option is here, a known name with this prefix, or the most similar one."""
    known = list(known)
    if remedy := ours(name.removeprefix("--").replace("-", "_"), {each.removeprefix("--") for each in known}):
        return remedy
    longer = (each for each in known if each.startswith(name))
    # Of an option's two spellings prefer the one with underscores, as in YAML.
    near = sorted(longer, key=lambda each: (each.count("-"), each)) or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "see --help for the options"


def _read_config(path: Path, hints: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration file, whose keys are the options with these types."""
    lines, config = read_mapping(path, hints=hints)
    for key, value in config.items():
        line = lines.get(str(key), 1)
        if key not in hints:
            raise UserError(f"{path}:{line}: unknown key {key!r}; {_nearest(str(key), hints)}")
        # Strings are converted as on the command line, which refuses what is no choice, but not in defaults.
        hint = str if isinstance(value, str) and not _choices(hints[key]) else hints[key]
        if isinstance(value, dict) and not misfit([value], hint):
            value = [value]
        if problem := misfit(value, hint, key):
            raise UserError(f"{path}:{line}: {problem}")
        if problem := _unusable(value):
            raise UserError(f"{path}:{line}: {key} {problem}")
    return config


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
