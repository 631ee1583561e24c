"""The options of a command: a parser made of the fields of dataclasses, as transformers' `HfArgumentParser` makes one.

The commands of training have TRL's own dataclasses, so that an option here is read as TRL reads it.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from notewriter.ground.errors import UserError
from notewriter.ground.options import DEFAULTS, defaults
from notewriter.ground.typed import shown

PLUGINS = "plugins"
"""The option of every command that names code to import."""

LIBRARIES = ("trl.", "transformers.")
"""Packages whose dataclasses are options of training."""


class Parser(argparse.ArgumentParser):
    """The parser of a command's options."""

    def error(self, message: str) -> NoReturn:
        """An error in one line, where argparse would print the whole usage too."""
        raise UserError(f"{message}; see --help")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """The value of an option; None for `null`, as in YAML, where the option may be that."""
        is_null = vars(action).get("optional") and [word.lower() for word in arg_strings] == ["null"]
        return None if is_null else super()._get_values(action, arg_strings)


def parser_of(kinds: Sequence[type], prog: str | None = None, description: str | None = None) -> Parser:
    """A parser with the options of dataclasses, `--config` and `--plugins`."""
    # An abbreviation would change its meaning as soon as a second option shares the prefix.
    parser = Parser(prog, description=description, allow_abbrev=False, formatter_class=_HelpFormatter)
    others: argparse.ArgumentParser | argparse._ArgumentGroup = parser
    if any(each.__module__.startswith(LIBRARIES) for kind in kinds for each in kind.__mro__):
        others = parser.add_argument_group("options of TRL and transformers")
    for kind in kinds:
        hints, usual = get_type_hints(kind), defaults(kind)
        for option in dataclasses.fields(kind):
            default = {"default": usual[option.name]} if option.name in usual else {"required": True}
            group = others if _is_of_a_library(kind, option) else parser
            _add_option(group, option, hints[option.name], default)
    required = [f"{action.option_strings[0]} {action.dest.upper()}" for action in parser._actions if action.required]
    parser.usage = " ".join(["%(prog)s", *required, "[--OPTION VALUE ...]"])
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


def _is_of_a_library(kind: type, option: dataclasses.Field[Any]) -> bool:
    """Whether a dataclass takes an option unchanged from TRL or transformers."""
    of_libraries = [vars(each) for each in kind.__mro__ if each.__module__.startswith(LIBRARIES)]
    return any(each.get("__dataclass_fields__", {}).get(option.name) is option for each in of_libraries)


def _add_option(
    parser: argparse._ActionsContainer, option: dataclasses.Field[Any], hint: Any, default: dict[str, Any]
) -> None:
    """Add the option of a field; that of `a_b` is spelled `--a_b` or `--a-b`.

    A mapping is JSON. A switch may stand alone, and one that is on by default has a second one, `--no_a_b`.
    """
    settings = {key: value for key, value in option.metadata.items() if key not in DEFAULTS} | default
    kind = _given_as(hint)
    stands_alone = {"nargs": "?", "const": True}
    if kind in (bool, bool | None):
        settings |= {"type": _truth, "metavar": "true|false"}
        if settings.setdefault("default", False) is not None:
            settings |= {**stands_alone, "required": False}
    elif choices := choices_of(kind):
        settings |= {"choices": choices, "type": functools.partial(_choice, choices)}
        if any(choice is True for choice in choices):
            settings |= {**stands_alone, "metavar": f"{{{','.join(map(str, choices)).lower()}}}"}
    elif get_origin(kind) is list:
        settings |= {"type": _converter(get_args(kind)[0]), "nargs": "+"}
        if not isinstance(settings.get("default"), list):
            # Some of TRL's have a default that is no list; they take None for it.
            settings["default"] = None
    else:
        settings["type"] = _converter(kind, optional=kind is not str and NoneType in get_args(hint))
    action = parser.add_argument(*_spellings(option.name), dest=option.name, **settings)
    vars(action).update(plugins=option.metadata.get("plugins"), optional=NoneType in get_args(hint))
    if kind in (bool, bool | None) and option.default is True:
        off = _spellings(f"no_{option.name}")
        parser.add_argument(*off, dest=option.name, action="store_false", default=False, help=argparse.SUPPRESS)


def _spellings(name: str) -> list[str]:
    return list(dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"]))


def _given_as(hint: Any) -> Any:
    """The member of a union that a word on the command line becomes."""
    if get_origin(hint) not in (Union, UnionType) or hint == bool | None:
        return hint
    first, second, *_ = get_args(hint)
    return first if second is NoneType or (second is str and NoneType not in get_args(hint)) else second


def choices_of(kind: Any) -> list[Any]:
    """The values of a literal or an enumeration; none for other types."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [each.value for each in kind]
    return list(get_args(kind)) if get_origin(kind) is Literal else []


def _converter(kind: Any, *, optional: bool = False) -> Callable[[str], Any]:
    """The converter of a word on the command line to a value; for an optional number, `none` is None."""
    if get_origin(kind) is dict:
        return _json_object

    def convert(text: str) -> Any:
        return None if optional and text.lower() == "none" else kind(text)

    # argparse names it in errors.
    convert.__name__ = kind.__name__
    return convert


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


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Marks required options and shows telling defaults; keeps paragraphs and indented commands."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """An option in the first of its spellings, with its value."""
        if action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{action.option_strings[0]} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        blocks = text.strip("\n").split("\n\n")
        return "\n\n".join(
            block if block.startswith((" ", "|", "- ")) else fill(block, width, indent) for block in blocks
        )

    def _get_help_string(self, action: argparse.Action) -> str | None:
        plugins = vars(action).get("plugins")
        installed = f"; installed: {', '.join(plugins.from_packages())}" if plugins and plugins.from_packages() else ""
        if action.required:
            return f"{action.help}{installed} (required)"
        shown = action.help if action.default in (None, [], {}) else super()._get_help_string(action)
        return shown and shown + installed
