"""Reading plain data that others wrote, or that may be damaged, by type annotations: checked whole or refused.

pydantic-core checks and builds; an error names the place, the value there and the wanted type. pydantic's own schemas
would read nan and bytes where `Any` is wanted, make a float of an int, and name neither the place nor the value.
"""

import functools
import math
import operator
import typing
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin

from annotated_types import Interval, MinLen

from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy

if TYPE_CHECKING:
    import pydantic_core
    from pydantic_core import CoreSchema, SchemaValidator
    from pydantic_core import core_schema as core
else:
    # A command's help needs none of it.
    pydantic_core, core = Lazy("pydantic_core"), Lazy("pydantic_core.core_schema")

T = TypeVar("T")

MAX_SHOWN = 60
"""Characters of a value shown in an error."""

MAX_WHOLE = 10**300
"""Larger integers, which JSON may have, cannot be computed with as floats."""

UNION = "|"
"""The first character of a union member's label, by which errors recognise the label and leave it out."""

MISFIT = "misfit"
"""The type of pydantic's error whose text is the wanted type, such as `list[str]`."""


def read(value: object, kind: type[T], place: str, remedy: str = "fix the value", *, whole: bool = False) -> T:
    """Plain data as an instance of an annotated type; keys that a dataclass does not have are left out.

    With `whole` such keys are refused, also in a dataclass within.

    A type may consist of JSON's types, lists, tuples (lists in JSON), dictionaries, literals, unions, dataclasses and
    typed dictionaries, and of `Annotated` with an `Interval` or a `MinLen`. The dataclasses of a union differ in the
    default of `kind`; typed dictionaries keep other keys. `Any` stands for any plain data. An int is a float too;
    numbers must be finite.

    Raises:
        UserError: the value does not match; names the place, the key, the value found and the wanted type.
    """
    annotation: Any = kind
    try:
        instance: T = _validator(annotation).validate_python(value, context=whole)
    except pydantic_core.ValidationError as error:
        raise UserError(_first_problem(error, place, remedy)) from error
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


def _first_problem(error: Any, place: str, remedy: str) -> str:
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
        missing = f"item {key}" if isinstance(key, int) else repr(key)
        return f"{_place(place, inner[:-1])} has no {missing}; {remedy}".lstrip()
    if first["type"] == "unknown":
        return f"{_place(place, inner)}: {first['msg']}"
    if first["type"] == "bound":
        return f"{_place(place, inner)}: {shown(value)} {first['msg']}; {remedy}"
    wanted = {MISFIT: f"must be {first['msg']}", "too_long": "is too long"}.get(first["type"], first["msg"])
    return f"{_place(place, inner)} {wanted}, not {shown(value)}; {remedy}".lstrip()


def _place(place: str, keys: list[Any]) -> str:
    """Where a value is, such as `file.json: steps[0]: text`."""
    if keys[-1:] == ["[key]"]:
        return f"the key {shown(keys[-2])} of {_place(place, keys[:-2])}"
    for key in keys:
        place = f"{place}[{key}]" if isinstance(key, int) else f"{place}: {key}" if place else str(key)
    return place


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of a dataclass or a typed dictionary, including `Annotated` metadata."""
    return typing.get_type_hints(kind, include_extras=True)


def may_be_empty(hint: Any) -> bool:
    """Whether an annotation allows empty strings: `MinLen(0)`."""
    return any(part == MinLen(0) or may_be_empty(part) for part in get_args(hint))


@functools.cache
def _validator(kind: Any) -> "SchemaValidator":
    """The validator of an annotated type."""
    return pydantic_core.SchemaValidator(_schema(kind, _name_of(kind)))


def _schema(hint: Any, name: str) -> "CoreSchema":
    """The schema for pydantic-core; `name` is the wanted type in errors."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if hint is Any:
        return core.no_info_plain_validator_function(_plain)
    if kind in (Required, NotRequired):
        return _schema(parts[0], name)
    if kind is Annotated:
        schema = _schema(parts[0], name)
        for bound in parts[1:]:
            schema = core.no_info_after_validator_function(functools.partial(_within, bound), schema)
        return schema
    if kind in (Union, UnionType):
        members = [part for part in parts if part is not NoneType]
        schema = _schema(members[0], name) if len(members) == 1 else _union(members, name)
        return core.nullable_schema(schema) if NoneType in parts else schema
    if kind in (list, dict, tuple) or is_dataclass(kind) or typing.is_typeddict(kind):
        outer = {list: list, tuple: (list, tuple)}.get(kind, dict)
        return core.chain_schema([_is_a(core.is_instance_schema(outer), name), _inside(kind, parts)])
    if kind is Literal:
        return _is_a(core.literal_schema(list(parts)), f"one of {', '.join(map(str, parts))}")
    if kind is int:
        return _is_a(core.int_schema(strict=True), name)
    if kind is float:
        # An int stays one.
        number = core.float_schema(strict=True, allow_inf_nan=False)
        whole = core.int_schema(strict=True, ge=-MAX_WHOLE, le=MAX_WHOLE)
        return _is_a(core.union_schema([whole, number], mode="left_to_right"), name)
    if kind in (str, bool, NoneType):
        return _is_a(core.is_instance_schema(kind), name)
    return core.any_schema()


def _is_a(schema: "CoreSchema", name: str) -> "CoreSchema":
    return core.custom_error_schema(schema, custom_error_type=MISFIT, custom_error_message=name)


def _union(members: list[Any], name: str) -> "CoreSchema":
    if all(is_dataclass(member) and _tag_of(member) for member in members):
        return core.tagged_union_schema(
            {UNION + _tag_of(member): _schema(member, _name_of(member)) for member in members},
            lambda value: f"{UNION}{value.get('kind')}" if isinstance(value, dict) else None,
            custom_error_type=MISFIT,
            custom_error_message=name,
        )
    return core.union_schema([(_schema(member, name), UNION) for member in members], mode="left_to_right")


def _inside(kind: Any, parts: tuple[Any, ...]) -> "CoreSchema":
    """The schema of the contents of a list, a tuple, a dictionary, a typed dictionary or a dataclass."""
    items = [core.any_schema() if part is Ellipsis else _schema(part, _name_of(part)) for part in parts]
    if kind is list:
        return core.list_schema(*items)
    if kind is dict:
        return core.dict_schema(*items)
    if kind is tuple:
        if not items:
            return core.tuple_schema([core.any_schema()], variadic_item_index=0)
        return core.tuple_schema(items[:1], variadic_item_index=0) if ... in parts else core.tuple_schema(items)
    schemas = {key: _schema(hint, _name_of(hint)) for key, hint in hints_of(kind).items()}
    if typing.is_typeddict(kind):
        required = kind.__required_keys__
        own = {key: core.typed_dict_field(each, required=key in required) for key, each in schemas.items()}
        # Other keys are kept, in their order.
        return core.no_info_wrap_validator_function(
            lambda value, handler: {**value, **handler(value)}, core.typed_dict_schema(own, extra_behavior="ignore")
        )
    known = {}
    for field in fields(kind):
        is_needed = field.default is field.default_factory is MISSING
        if field.name == "kind" and _tag_of(kind):
            schemas["kind"], is_needed = _is_a(core.literal_schema([field.default]), repr(field.default)), True
        known[field.name] = core.typed_dict_field(schemas[field.name], required=is_needed)
    build = functools.partial(_built, kind, tuple(known))
    return core.with_info_wrap_validator_function(build, core.typed_dict_schema(known, extra_behavior="ignore"))


def _built(kind: Any, known: tuple[str, ...], value: dict[Any, Any], handler: Any, info: Any) -> Any:
    """The instance of a dataclass; the context is whether other keys are refused."""
    if info.context and (others := [key for key in value if key not in known]):
        text = f"unknown key {others[0]!r}; known are: {', '.join(known)}"
        raise pydantic_core.PydanticCustomError("unknown", "{text}", {"text": text})
    return kind(**handler(value))


def _tag_of(kind: Any) -> str:
    """The default of a dataclass's field `kind`, which tells the records of a union apart; empty if it has none."""
    return next((each.default for each in fields(kind) if each.name == "kind" and isinstance(each.default, str)), "")


BOUNDS = {
    "gt": (operator.gt, "above", "small"),
    "ge": (operator.ge, "at least", "small"),
    "lt": (operator.lt, "below", "large"),
    "le": (operator.le, "at most", "large"),
}
"""A bound of an `Interval` -> the comparison that holds within it, its words, and the fault of a value beyond it."""


def _within(bound: Any, value: Any) -> Any:
    """The value, if it is within an `Interval` and has the length of a `MinLen`."""
    if isinstance(bound, MinLen) and len(value) < bound.min_length:
        raise pydantic_core.PydanticCustomError("bound", f"is too short; give at least {bound.min_length}")
    if isinstance(bound, Interval) and value is not None:
        limits = {name: limit for name in BOUNDS if (limit := getattr(bound, name)) is not None}
        for name, limit in limits.items():
            holds, _, size = BOUNDS[name]
            if not holds(value, limit):
                words = " and ".join(f"{BOUNDS[name][1]} {limit}" for name, limit in limits.items())
                raise pydantic_core.PydanticCustomError("bound", f"is too {size}; give {words}")
    return value


def _plain(value: Any) -> Any:
    """The value, if it consists of JSON's types: the meaning of `Any`."""
    if unfit := _not_plain(value, ()):
        raise pydantic_core.PydanticCustomError(MISFIT, unfit[1], {"inner": unfit[0], "value": unfit[2]})
    return value


def _not_plain(value: Any, place: tuple[Any, ...]) -> tuple[tuple[Any, ...], str, Any] | None:
    """The place of a value that JSON does not have, the type wanted there, and the value."""
    if isinstance(value, (dict, list)):
        if isinstance(value, dict) and (odd := next((key for key in value if not isinstance(key, str)), None)):
            return (*place, odd, "[key]"), "str", odd
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return next(filter(None, (_not_plain(part, (*place, key)) for key, part in parts)), None)
    if isinstance(value, float) and not math.isfinite(value):
        return place, "a finite number", value
    if value is None or isinstance(value, (str, int, float, tuple)):
        return None
    return place, "a string, a number, true, false, a list or a mapping", value


def _name_of(hint: Any) -> str:
    """An annotation as shown in errors."""
    parts = get_args(hint)
    if get_origin(hint) in (Annotated, Required, NotRequired):
        return _name_of(parts[0])
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(dict.fromkeys("None" if part is NoneType else _name_of(part) for part in parts))
    if parts and isinstance(origin := get_origin(hint), type):
        return f"{origin.__name__}[{', '.join('...' if part is ... else _name_of(part) for part in parts)}]"
    if is_dataclass(hint) or typing.is_typeddict(hint):
        # As those who wrote the file know it; our classes' names are not theirs.
        return f"object of kind {tag}" if is_dataclass(hint) and (tag := _tag_of(hint)) else "object"
    return str(getattr(hint, "__name__", hint))
