"""Checking plain data from JSON and YAML against type annotations, with errors that name the part at fault."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from annotated_types import Interval, MinLen

MAX_SHOWN = 60
"""Characters of a value shown in an error."""


def misfit(value: Any, hint: Any, place: str = "") -> str:
    """Why a value does not match an annotation, such as `steps[0]: text must be str, not 3`; empty if it does.

    Annotations may consist of JSON's types, lists, tuples (lists in JSON), dictionaries, unions, dataclasses and
    typed dictionaries (extra keys are ignored), and `Annotated` with an `Interval` or a `MinLen`. `Any` stands for
    any plain data. Numbers must be finite.
    """
    try:
        return _misfit(value, hint, place)
    except RecursionError:
        return f"{place} refers to itself or is nested too deeply"


def shown(value: Any) -> str:
    """The repr of a value for an error message, truncated."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _misfit(value: Any, hint: Any, place: str) -> str:
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if hint is Any:
        return _not_plain(value, place)
    if kind is Annotated:
        return _misfit(value, parts[0], place) or next(
            filter(None, (_outside(value, each, place) for each in parts)), ""
        )
    if kind is Literal:
        return "" if value in parts else f"{place} must be one of {', '.join(map(str, parts))}, not {shown(value)}"
    if kind in (Union, UnionType):
        problems = [_misfit(value, part, place) for part in parts]
        # If only one member of the union can be meant, report its problem.
        meant = [problem for problem, part in zip(problems, parts, strict=True) if _is_meant(value, part)]
        return "" if "" in problems else meant[0] if len(meant) == 1 else _not_a(value, hint, place)
    inside: list[tuple[Any, Any, str]] = []
    if not _is_a(value, kind):
        return _not_a(value, hint, place)
    if is_dataclass(kind):
        return _misfit_of_fields(value, kind, place)
    if is_typeddict(kind):
        # In the order in which they are declared.
        if missing := [key for key in hints_of(kind) if key in kind.__required_keys__ and key not in value]:
            return f"{place} has no {missing[0]!r}".lstrip()
        inside = [(value[key], part, _inside(place, key)) for key, part in hints_of(kind).items() if key in value]
        return next((problem for each in inside if (problem := _misfit(*each))), "")
    if kind is dict and parts:
        inside = [(each, parts[0], f"the key {shown(each)} of {place}") for each in value]
        inside += [(each, parts[1], _inside(place, key)) for key, each in value.items()]
    elif kind is tuple and parts and parts[-1] is not Ellipsis:
        if len(value) != len(parts):
            return _not_a(value, hint, place)
        inside = [(each, part, f"{place}[{i}]") for i, (each, part) in enumerate(zip(value, parts, strict=True))]
    elif kind in (list, tuple) and parts:
        inside = [(each, parts[0], f"{place}[{i}]") for i, each in enumerate(value)]
    return next((problem for each in inside if (problem := _misfit(*each))), "")


def _misfit_of_fields(value: Mapping[str, Any], kind: Any, place: str) -> str:
    hints = hints_of(kind)
    for field in fields(kind):
        if field.name == "kind" and isinstance(field.default, str):
            # The discriminator of a union of records.
            if value.get("kind") != field.default:
                return f"{_inside(place, 'kind')} must be {field.default!r}, not {shown(value.get('kind'))}"
        elif field.name in value:
            if problem := _misfit(value[field.name], hints[field.name], _inside(place, field.name)):
                return problem
        elif field.default is MISSING and field.default_factory is MISSING:
            return f"{place} has no {field.name!r}".lstrip()
    return ""


def _inside(place: str, key: object) -> str:
    return f"{place}: {key}" if place else str(key)


def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of a dataclass, including `Annotated` metadata."""
    return _hints_of(kind)


@functools.cache
def _hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _is_a(value: Any, kind: Any) -> bool:
    if is_dataclass(kind) or is_typeddict(kind):
        return isinstance(value, dict)
    if kind in (int, float):
        number = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
        return number and (isinstance(value, int) or math.isfinite(value))
    if kind is tuple:
        return isinstance(value, (list, tuple))
    return kind not in (bool, str, list, dict, NoneType) or isinstance(value, kind)


def _is_meant(value: Any, part: Any) -> bool:
    """Whether a value matches a member of a union, regardless of its contents."""
    base = get_args(part)[0] if get_origin(part) is Annotated else part
    kind = get_origin(base) or base
    if is_dataclass(kind) and isinstance(value, dict):
        return any(field.name == "kind" and field.default == value.get("kind") for field in fields(kind))
    return kind is not NoneType and _is_a(value, kind)


def _not_plain(value: Any, place: str) -> str:
    if isinstance(value, dict):
        return _misfit(value, dict[str, Any], place)
    if isinstance(value, list):
        return _misfit(value, list[Any], place)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} must be a finite number, not {value!r}"
    if value is None or isinstance(value, (str, int, float, tuple)):
        return ""
    return f"{place} must be a string, a number, true, false, a list or a mapping, not {shown(value)}"


def _outside(value: Any, bound: Any, place: str) -> str:
    """Why a value of the right type violates an `Interval` or a `MinLen`; empty if it does not."""
    if isinstance(bound, MinLen) and len(value) < bound.min_length:
        return f"{place} must have at least {bound.min_length}, not {shown(value)}"
    if not isinstance(bound, Interval):
        return ""
    low = bound.gt if bound.ge is None else bound.ge
    too_low = (bound.ge is not None and value < bound.ge) or (bound.gt is not None and value <= bound.gt)
    too_high = (bound.le is not None and value > bound.le) or (bound.lt is not None and value >= bound.lt)
    if not (too_low or too_high):
        return ""
    high = bound.lt if bound.le is None else bound.le
    words = [f"above {low}" if bound.ge is None else f"at least {low}"] if low is not None else []
    words += [f"below {high}" if bound.le is None else f"at most {high}"] if high is not None else []
    return f"{place}: {shown(value)} is too {'small' if too_low else 'large'}; give {' and '.join(words)}"


def _not_a(value: Any, hint: Any, place: str) -> str:
    return f"{place} must be {name_of(hint)}, not {shown(value)}"


def may_be_empty(hint: Any) -> bool:
    """Whether an annotation allows empty strings: `MinLen(0)`."""
    return any(part == MinLen(0) or may_be_empty(part) for part in get_args(hint))


def name_of(hint: Any) -> str:
    """An annotation as shown in errors."""
    parts: Sequence[Any] = get_args(hint)
    if get_origin(hint) is Annotated:
        return name_of(parts[0])
    if get_origin(hint) in (Union, UnionType):
        return " | ".join("None" if part is NoneType else name_of(part) for part in parts)
    if parts and isinstance(origin := get_origin(hint), type):
        return f"{origin.__name__}[{', '.join(map(name_of, parts))}]"
    return getattr(hint, "__name__", str(hint))
