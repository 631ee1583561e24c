"""The reader and writer of artifacts; it checks the schema, then every key against the dataclass."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from notewriter.ground import jsonl, typed
from notewriter.ground.errors import UserError

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
    own = record.get("schema") if isinstance(record, dict) else None
    if own != schema:
        raise UserError(f"{place}: has the schema {own!r}, not {schema!r}; {remedy}")


def read_record(record: object, kind: type[R], schema: str, place: str, remedy: str) -> R:
    """The instance of a dataclass in a JSON object that `record_of` made; unknown keys are ignored.

    Raises:
        UserError: another schema, a missing key, or a value of the wrong type; begins with `place`.
    """
    check_schema(record, schema, place, remedy)
    return typed.read(record, kind, place, remedy)


def record_of(instance: Any, schema: str) -> dict[str, Any]:
    """An instance of a dataclass as a JSON object, with its schema."""
    return {"schema": schema, **asdict(instance)}


@dataclass(frozen=True)
class Artifact(Generic[R]):
    """A JSON file that has an instance of a dataclass.

    Args:
        kind: the dataclass.
        schema: its name in the file.
        remedy: what to do about a file that is damaged.
    """

    kind: type[R]
    schema: str
    remedy: str

    def read(self, path: Path) -> R:
        """The instance in a file.

        Raises:
            UserError: there is no such file, or it is damaged; names the key.
        """
        return read_record(read_json(path, self.remedy), self.kind, self.schema, str(path), self.remedy)

    def write(self, path: Path, instance: R) -> None:
        """Write a file.

        Raises:
            UserError: it cannot be written.
        """
        write_json(path, record_of(instance, self.schema))


def pick(record: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The values of a dataclass's fields in a mapping; other keys are left out."""
    return {field.name: record[field.name] for field in fields(kind) if field.name in record}


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
