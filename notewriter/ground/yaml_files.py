"""Reading YAML: plain data only, bounded, with the words that YAML changes read as they were meant."""

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from notewriter.ground import typed
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.parser import choices_of
from notewriter.ground.typed import T, misfit, shown

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
"""Plain words that YAML 1.1 reads in a way that few mean, by the type that it gives them."""


def read_mapping(
    path: Path, remedy: str = "check the path after --config", hints: Mapping[str, Any] | None = None
) -> tuple[dict[str, int], dict[str, Any]]:
    """The line number of each key of a YAML file, and the parsed mapping.

    Args:
        path: the file.
        remedy: what to do if it cannot be read.
        hints: the types of its keys, for words that YAML would change; None leaves them to YAML.

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


def check_mapping(content: Any, kind: type[T], place: str) -> T:
    """Check the mapping of a YAML file, or a part of it, against a dataclass, and build that.

    Raises:
        UserError: a key is missing or unknown, also in a dataclass within, or a value has the wrong type.
    """
    return typed.read(content, kind, place, whole=True)


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
        if root is None:
            return None, None
        _check_aliases(root)
        if isinstance(root, yaml.MappingNode) and hints is not None:
            for key, value in root.value:
                loader.mean(value, hints.get(key.value, Any), key.value)
        return root, loader.construct_document(root)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error


class _Refused(yaml.MarkedYAMLError):
    """YAML that would be read otherwise than meant: a key twice, or a word that YAML changes."""


class _Loader(yaml.SafeLoader):
    """Constructs plain data only; a repeated key or a value that does not suit its tag is an error with its place."""

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
            if node.value and re.fullmatch(pattern, node.value):
                node.tag, node.value = _meaning(node, hint, f"{key}: YAML takes {node.value} for {taken_for}")


def _meaning(node: yaml.ScalarNode, hint: Any, what: str) -> tuple[str, str]:
    """The tag and the text of the meaning of a plain word that YAML changes, where its type is `hint`."""
    names = [name for part in (hint, *get_args(hint)) if isinstance(part, type) for name in choices_of(part)]
    known = Literal[tuple(names)] if names else hint
    for kind, value in _readings(node.value):
        if (kind == "float" and node.tag == f"{_YAML}str") if hint is Any else not misfit(value, known):
            return f"{_YAML}{kind}", str(value)
    if node.tag == f"{_YAML}str":
        # What is wrong with the number is said where the option's type is checked.
        return f"{_YAML}float", node.value
    what = f'{what}; quote it ("{node.value}"), or write what is meant'
    raise _Refused(problem=what, problem_mark=node.start_mark)


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
    """Check the size of a text once each alias is replaced by its contents, which can grow with every line.

    Raises:
        yaml.YAMLError: far more than is written in it, a value that contains itself, or a number too long to be read.
    """
    sizes: dict[yaml.Node, int] = {}
    written, inside = 0, set[yaml.Node]()

    def size(node: yaml.Node) -> int:
        nonlocal written
        line = node.start_mark.line + 1
        if node in inside:
            raise yaml.YAMLError(f"line {line}: a value contains itself; write it out")
        if node not in sizes:
            if node.tag.endswith((":int", ":float")) and len(node.value) > LONGEST_NUMBER:
                what = f"{shown(node.value)} is no {node.tag.rpartition(':')[2]}"
                raise yaml.YAMLError(f"line {line}: {what}, it is too long")
            inside.add(node)
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
