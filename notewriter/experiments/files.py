"""The language of pipelines, experiments and tables: YAML with variables, repetition and other files.

Texts are Jinja templates over the variables of the file, which may use each other and are filled in where they are
used: `{{ output_dir }}/pairs`. `include` adds the keys of other files; `each` repeats an entry of a list.
"""

import functools
import itertools
import logging
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen
from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from notewriter.ground import typed
from notewriter.ground.errors import UserError, meant, one_line
from notewriter.ground.recipes import find
from notewriter.ground.terminal import say_once
from notewriter.ground.typed import misfit
from notewriter.ground.yaml_files import read_mapping

logger = logging.getLogger(__name__)

MAX_RUNS = 1_000
"""The largest number of runs: each is a job of a cluster, whose queue takes 10,000 unless MaxJobCount is raised."""

Text = Annotated[str, MinLen(1)]
Value = str | int | float | None
Variables = Mapping[str, Value]
"""Name -> value; texts are templates, and None has to be given on the command line."""

COMMON = {"include": str | list[str], "variables": dict[str, Value], "runs": list[dict[str, Any]]}
"""The keys that are merged with those of included files."""

EACH = dict[str, list[Value] | dict[str, dict[str, Value]]]
"""Variable -> its values, or value -> the variables that go with it."""

_SPLIT = re.compile(r"[\s'\"\\]")
"""The characters at which a shell splits words, or which it removes."""

_ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=StrictUndefined)


class Given(str):
    """A value from the command line: no template, and part of one word wherever a command has it."""


class MissingVariable(UserError):
    """A text uses a variable that has no value; `name` is its name."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


def read_file(path: Path, remedy: str) -> dict[str, Any]:
    """The keys of a file and of those that it includes, which are other files beside it or recipes.

    Mappings such as `variables` are merged, in which the file's own entries count, and so do its other keys. Its runs
    come after those of the files that it includes. A file that several include counts once, at its first place. A
    warning names its own variables that nothing uses, and that so change nothing in the files that it includes.

    Raises:
        UserError: a file cannot be read (ends with `remedy`), includes itself, or a key that is merged has the wrong
            type.
    """
    path = find(path)
    merged = _read(path, remedy, (), set())
    lines, own = read_mapping(path, remedy, {})
    if "include" in own and "variables" in own:
        for unused in _unused(own["variables"], merged, merged["variables"]):
            # It may be of use to another file that this one resembles.
            say_once(logger, f"{path}:{lines['variables']}: variables: {unused}")
    return merged


def _unused(names: Iterable[str], content: object, variables: Variables) -> Iterator[str]:
    """What is to be said of variables that no template in `content`, keys included, has by name."""
    # A template may have several lines.
    templates = re.findall(r"{[{%].*?[%}]}", str(content).replace("\\n", " "))
    used = {word for template in templates for word in re.findall(r"\w+", template)}
    for name in (name for name in names if name not in used):
        yield f"nothing uses {name!r}; {meant(name, variables.keys() - {name}, 'remove it')}"


def _read(path: Path, remedy: str, includers: Sequence[Path], done: set[Path]) -> dict[str, Any]:
    """The keys of a file and of those that it includes and that are not `done`."""
    path = find(path)
    done.add(path.resolve())
    lines, content = read_mapping(path, remedy, {})
    for key, hint in COMMON.items():
        if key in content and (problem := misfit(content[key], hint, key)):
            raise UserError(f"{path}:{lines[key]}: {problem}")
    names = content.pop("include", [])
    merged: dict[str, Any] = {}
    for name in [names] if isinstance(names, str) else names:
        beside = path.parent / name
        other = beside if beside.is_file() else find(name)
        if other.resolve() in (*includers, path.resolve()):
            raise UserError(f"{path}:{lines['include']}: {other} includes itself; remove it from include")
        if other.resolve() not in done:
            missing = f"correct include in {path}:{lines['include']}"
            merged = _merged(merged, _read(other, missing, (*includers, path.resolve()), done))
    return _merged(merged, content)


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    merged = first | second
    for key in first.keys() & second.keys():
        if key == "runs" or (isinstance(first[key], dict) and isinstance(second[key], dict)):
            merged[key] = first[key] + second[key] if key == "runs" else first[key] | second[key]
    return merged


def changes_of(settings: Sequence[str]) -> dict[str, str]:
    """The variables in the values of `--set`.

    Raises:
        UserError: one is not NAME=VALUE.
    """
    if malformed := [setting for setting in settings if "=" not in setting]:
        raise UserError(f"--set {malformed[0]}: is not NAME=VALUE; write --set model_dir=models/x")
    return dict(setting.split("=", 1) for setting in settings)


def changed(variables: Variables, changes: Mapping[str, str], path: Path) -> dict[str, Value]:
    """The variables of a file with values from the command line, each of which stays within one word of a command.

    Raises:
        UserError: the file has no such variable.
    """
    for name in changes:
        if name not in variables:
            names = ", ".join(variables) or "none"
            raise UserError(f"--set {name}: {path} has no such variable; it has {names}")
    return {**variables, **{name: Given(value) for name, value in changes.items()}}


def repeated(
    entries: Sequence[Mapping[str, Any]], variables: Variables, place: str
) -> Iterator[tuple[dict[str, Any], Variables, str]]:
    """Each entry without `each`, with the variables that it is filled with and its place in the file.

    An entry with `each` stands for itself, or for its `runs`, once for each combination of values.

    Raises:
        UserError: `each` has the wrong type.
    """
    for number, entry in enumerate(entries):
        here = f"{place}[{number}]"
        if "each" not in entry:
            yield dict(entry), variables, here
            continue
        typed.read(entry["each"], EACH, f"{here}: each")
        once = {key: value for key, value in entry.items() if key != "each"}
        if "runs" in once:
            if unknown := [key for key in once if key != "runs"]:
                raise UserError(f"{here}: unknown key {unknown[0]!r} beside each and runs; move it into the runs")
            typed.read(once["runs"], list[dict[str, Any]], f"{here}: runs")
        others = [name for each in entry["each"].values() if isinstance(each, dict) for name in each.values()]
        if unused := next(_unused(itertools.chain(*others), [once, variables], variables), ""):
            raise UserError(f"{here}: each: {unused}")
        for values in _combinations(entry["each"]):
            scope = {**variables, **values}
            if "runs" in once:
                yield from repeated(once["runs"], scope, f"{here}: runs")
            else:
                yield dict(once), scope, here


def _combinations(each: Mapping[str, Any]) -> Iterator[dict[str, Value]]:
    choices = [
        [{name: value} | (values[value] if isinstance(values, dict) else {}) for value in values]
        for name, values in each.items()
    ]
    for chosen in itertools.product(*choices):
        yield {name: value for values in chosen for name, value in values.items()}


def filled(text: str, variables: Variables, place: str, users: tuple[str, ...] = ()) -> str:
    """A text with the values of the variables that it uses.

    Args:
        text: the text.
        variables: the variables.
        place: where it stands.
        users: the variables that led to it, of which none may be used again.

    Raises:
        UserError: it is no template, or uses a variable that is not there or uses itself; names the place.
        MissingVariable: it uses a variable that has no value.
    """
    if isinstance(text, Given):
        return text
    try:
        template, names = _template(text)
        values = {name: _value(name, variables, place, users) for name in names}
        return template.render(values)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise UserError(f"{place}: is no template ({one_line(error)}); correct the part in {{{{ }}}}") from error


def words(command: str, variables: Variables, place: str) -> list[str]:
    """The words of a command line, split as a shell would.

    Raises:
        UserError: as `filled`, or a quotation is not closed.
    """
    # A given value that a shell would split or change is put in its place once the words are apart. Until then its name
    # stands there, between characters that no argument can have.
    apart = {name: value for name, value in variables.items() if isinstance(value, Given) and _SPLIT.search(value)}
    whole = {f"\0{name}\0": value for name, value in apart.items()}
    stand_ins = {**variables, **{name: Given(f"\0{name}\0") for name in apart}}
    try:
        split = shlex.split(filled(command, stand_ins, place))
        return [re.sub("\0.*?\0", lambda found: whole.get(found[0], found[0]), word) for word in split]
    except ValueError as error:
        raise UserError(f"{place}: {error}; close the quotation") from error


def filled_in(value: Any, variables: Variables, place: str) -> Any:
    """A value of a file with all its texts filled.

    Raises:
        UserError: as `filled`.
    """
    if isinstance(value, str):
        return filled(value, variables, place)
    if isinstance(value, list):
        return [filled_in(each, variables, place) for each in value]
    if isinstance(value, dict):
        return {filled_in(key, variables, place): filled_in(each, variables, place) for key, each in value.items()}
    return value


def _value(name: str, variables: Variables, place: str, users: tuple[str, ...]) -> Value:
    if name not in variables:
        names = ", ".join(variables)
        raise UserError(f"{place}: {name} in {{{{ }}}} is not a variable; known are: {names}")
    if name in users:
        raise UserError(f"{place}: {' uses '.join((*users, name))}, in a circle; give one of them a value of its own")
    value = variables[name]
    if value is None:
        raise MissingVariable(f"{place}: {name} has no value; add --set {name}=VALUE", name)
    return filled(value, variables, place, (*users, name)) if isinstance(value, str) else value


@functools.cache
def _template(text: str) -> tuple[Template, frozenset[str]]:
    """A template, and the variables that it uses."""
    names = meta.find_undeclared_variables(_ENVIRONMENT.parse(text)) - _ENVIRONMENT.globals.keys()
    return _ENVIRONMENT.from_string(text), frozenset(names)


def names_in(text: str, variables: Variables) -> set[str]:
    """The variables that a text uses, and those that these use; also names that are no variables.

    Raises:
        UserError: as `filled`.
    """
    names: set[str] = set()
    texts = [text]
    while texts:
        new = _template(texts.pop())[1] - names
        names |= new
        texts += [value for name in new if type(value := variables.get(name)) is str]
    return names
