"""Reading plain data that others wrote, or that may be damaged, by type annotations: checked whole or refused.

pydantic-core checks and builds; an error says the place, what stands there and what is wanted.
"""

from typing import Any, TypeVar

from notewriter.ground.annotations import MISFIT, UNION
from notewriter.ground.errors import UserError

T = TypeVar("T")

MAX_SHOWN = 60
"""Characters of a value shown in an error."""


def read(value: object, kind: type[T], place: str, remedy: str = "fix the value") -> T:
    """Plain data as an instance of an annotated type; keys that a dataclass does not have are left out.

    A type may consist of JSON's types, lists, tuples (lists in JSON), dictionaries, literals, unions, dataclasses and
    typed dictionaries, and of `Annotated` with an `Interval` or a `MinLen`. The dataclasses of a union differ in the
    default of `kind`; typed dictionaries keep other keys. `Any` stands for any plain data. An int is a float too;
    numbers must be finite.

    Raises:
        UserError: the value does not match; names the place, the key, what was found and what is wanted.
    """
    # Imported late: a command's help needs none of it.
    from pydantic_core import ValidationError

    from notewriter.ground.schemas import validator

    annotation: Any = kind
    try:
        instance: T = validator(annotation).validate_python(value)
    except ValidationError as error:
        raise UserError(f"{_first_problem(error, place)}; {remedy}") from error
    except RecursionError as error:
        raise UserError(f"{place} refers to itself or is nested too deeply; {remedy}") from error
    return instance


def misfit(value: object, kind: Any, place: str = "") -> str:
    """Why a value does not match an annotated type, such as `steps[0]: text must be str, not 3`; empty if it does."""
    try:
        read(value, kind, place, "")
    except UserError as error:
        return str(error).removesuffix("; ")
    return ""


def shown(value: Any) -> str:
    """The repr of a value for an error message, truncated."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _first_problem(error: Any, place: str) -> str:
    """The first of pydantic's errors in our words; of a union's, that of the member which the value came closest to."""
    problems = error.errors(include_url=False)
    first = problems[0]
    if UNION in first["loc"]:
        union = first["loc"][: first["loc"].index(UNION) + 1]
        first = max(
            (each for each in problems if each["loc"][: len(union)] == union),
            key=lambda each: (len(each["loc"]), each["type"] != MISFIT),
        )
    context = first.get("ctx", {})
    inner = [key for key in (*first["loc"], *context.get("inner", ())) if not str(key).startswith(UNION)]
    value = context.get("value", first["input"])
    if first["type"] == "missing":
        key = inner[-1]
        return f"{_place(place, inner[:-1])} has no {f'item {key}' if isinstance(key, int) else repr(key)}".lstrip()
    if first["type"] == "bound":
        return f"{_place(place, inner)}: {shown(value)} {first['msg']}"
    wanted = {MISFIT: f"must be {first['msg']}", "too_long": "is too long"}.get(first["type"], first["msg"])
    return f"{_place(place, inner)} {wanted}, not {shown(value)}".lstrip()


def _place(place: str, keys: list[Any]) -> str:
    """Where a value is, such as `file.json: steps[0]: text`."""
    if keys[-1:] == ["[key]"]:
        return f"the key {shown(keys[-2])} of {_place(place, keys[:-2])}"
    for key in keys:
        place = f"{place}[{key}]" if isinstance(key, int) else f"{place}: {key}" if place else str(key)
    return place
