"""How artifacts are read, checked (the schema, then every key against the dataclass) and written."""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.typecheck import hints_of, misfit

R = TypeVar("R")


def check_present(path: Path) -> None:
    """Check that a file of a run folder exists.

    Raises:
        UserError: the folder or the file is missing.
    """
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder; give the folder of a run, for example runs/NAME")
    if not path.is_file():
        raise UserError(f"{path}: no such file; run `notewriter evaluate` again, which resumes an unfinished run")


def read_text(path: Path) -> str:
    """The text of a file of a run folder.

    Raises:
        UserError: the folder or the file is missing, cannot be read or is not UTF-8.
    """
    check_present(path)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); check its permissions and encoding") from error


def check_schema(record: object, schema: str, place: str, remedy: str) -> None:
    """Check the `schema` field of a JSON object.

    Raises:
        UserError: it is missing or names another schema.
    """
    found = record.get("schema") if isinstance(record, dict) else None
    if found != schema:
        raise UserError(f"{place}: has the schema {found!r}, not {schema!r}; {remedy}")


def read_record(record: object, kind: type[R], schema: str, place: str, remedy: str) -> R:
    """The instance of a dataclass in a JSON object that `record_of` made; unknown keys are ignored.

    Raises:
        UserError: another schema, a missing key, or a value of the wrong type; begins with `place`.
    """
    check_schema(record, schema, place, remedy)
    if problem := misfit(record, kind, place):
        raise UserError(f"{problem}; {remedy}")
    return build(record, kind)


def record_of(instance: Any, schema: str) -> dict[str, Any]:
    """An instance of a dataclass as a JSON object, with its schema."""
    return {"schema": schema, **asdict(instance)}


def build(record: Any, kind: type[R]) -> R:
    """The instance of a dataclass, with those inside it, in a JSON object whose types were checked."""
    hint: Any = kind
    made: R = _builder(hint)(record)
    return made


def pick(record: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The values of a dataclass's fields in a mapping; other keys are left out."""
    return {field.name: record[field.name] for field in fields(kind) if field.name in record}


@functools.cache
def _builder(hint: Any) -> Callable[[Any], Any]:
    """What makes dataclasses and tuples of the plain data that fit an annotation; others stay as they are."""
    kind: Any = get_origin(hint) or hint
    parts = get_args(hint)
    if is_dataclass(kind):
        make: Any = kind
        builders = {name: _builder(part) for name, part in hints_of(kind).items()}
        return lambda record: make(**{name: builders[name](record[name]) for name in builders if name in record})
    if kind in (Union, UnionType):
        by_kind = {_kind_of(part): _builder(part) for part in parts}
        return lambda value: by_kind.get(value.get("kind") if isinstance(value, dict) else type(value), _same)(value)
    inner = [_builder(part) for part in parts if isinstance(part, type) or get_args(part)]
    if kind is tuple:
        return tuple
    if kind is list and inner and inner[0] is not _same:
        return lambda values: [inner[0](value) for value in values]
    if kind is dict and inner[1:] and inner[1] is not _same:
        return lambda values: {key: inner[1](value) for key, value in values.items()}
    return _same


def _kind_of(part: Any) -> object:
    """What tells a member of a union: the default of its field `kind`, or else its JSON type."""
    if is_dataclass(part):
        return next((field.default for field in fields(part) if field.name == "kind"), None)
    return list if (get_origin(part) or part) is tuple else get_origin(part) or part


def _same(value: Any) -> Any:
    return value


def read_json(path: Path, remedy: str) -> object:
    """The JSON value in a file of a run folder.

    Raises:
        UserError: the folder or the file is missing, cannot be read or is not JSON.
    """
    check_present(path)
    value: object = jsonl.read_object(path, object, remedy)
    return value


def write_json(path: Path, record: object) -> None:
    """Write a JSON value into a file of a run folder.

    Raises:
        UserError: it cannot be written.
    """
    jsonl.write_text(path, [json.dumps(record, indent=2, ensure_ascii=False) + "\n"])
