"""What pydantic-core is to check for an annotated type (`typed.read`), and what it builds.

Apart from `typed`, since the import takes a tenth of a second that a command's help has no use for.
"""

import functools
import math
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, is_typeddict

from annotated_types import Interval, MinLen
from pydantic_core import CoreSchema, PydanticCustomError, SchemaValidator
from pydantic_core import core_schema as core

from notewriter.ground.annotations import MISFIT, UNION, hints_of

MAX_WHOLE = 10**300
"""Larger integers, which JSON may have, cannot be computed with as floats."""


@functools.cache
def validator(kind: Any) -> SchemaValidator:
    """The validator of an annotated type."""
    return SchemaValidator(_schema(kind, _name_of(kind)))


def _schema(hint: Any, name: str) -> CoreSchema:
    """What pydantic-core is to check; `name` is what is wanted, in errors."""
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
    if kind in (list, dict, tuple) or is_dataclass(kind) or is_typeddict(kind):
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


def _is_a(schema: CoreSchema, name: str) -> CoreSchema:
    return core.custom_error_schema(schema, custom_error_type=MISFIT, custom_error_message=name)


def _union(members: list[Any], name: str) -> CoreSchema:
    if all(is_dataclass(member) and _tag_of(member) for member in members):
        return core.tagged_union_schema(
            {UNION + _tag_of(member): _schema(member, _name_of(member)) for member in members},
            lambda value: f"{UNION}{value.get('kind')}" if isinstance(value, dict) else None,
            custom_error_type=MISFIT,
            custom_error_message=name,
        )
    return core.union_schema([(_schema(member, name), UNION) for member in members], mode="left_to_right")


def _inside(kind: Any, parts: tuple[Any, ...]) -> CoreSchema:
    """What is in a list, a tuple, a dictionary, a typed dictionary or a dataclass."""
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
    if is_typeddict(kind):
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
    return core.no_info_after_validator_function(
        lambda values: kind(**values), core.typed_dict_schema(known, extra_behavior="ignore")
    )


def _tag_of(kind: Any) -> str:
    """The default of a dataclass's field `kind`, which tells the records of a union apart; empty if it has none."""
    return next((each.default for each in fields(kind) if each.name == "kind" and isinstance(each.default, str)), "")


def _within(bound: Any, value: Any) -> Any:
    """The value, if it is within an `Interval` or as long as a `MinLen` says."""
    if isinstance(bound, MinLen) and len(value) < bound.min_length:
        raise PydanticCustomError("bound", f"is too short; give at least {bound.min_length}")
    if not isinstance(bound, Interval) or value is None:
        return value
    low = bound.gt if bound.ge is None else bound.ge
    too_low = (bound.ge is not None and value < bound.ge) or (bound.gt is not None and value <= bound.gt)
    too_high = (bound.le is not None and value > bound.le) or (bound.lt is not None and value >= bound.lt)
    if too_low or too_high:
        high = bound.lt if bound.le is None else bound.le
        words = [f"above {low}" if bound.ge is None else f"at least {low}"] if low is not None else []
        words += [f"below {high}" if bound.le is None else f"at most {high}"] if high is not None else []
        size = "small" if too_low else "large"
        raise PydanticCustomError("bound", f"is too {size}; give {' and '.join(words)}")
    return value


def _plain(value: Any) -> Any:
    """The value, if it consists of what JSON has; what `Any` stands for."""
    if unfit := _not_plain(value, ()):
        raise PydanticCustomError(MISFIT, unfit[1], {"inner": unfit[0], "value": unfit[2]})
    return value


def _not_plain(value: Any, place: tuple[Any, ...]) -> tuple[tuple[Any, ...], str, Any] | None:
    """The place of something that JSON does not have, what is wanted there, and what it is."""
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
    if is_dataclass(hint) or is_typeddict(hint):
        # As those who wrote the file know it; our classes' names are not theirs.
        return f"object of kind {tag}" if is_dataclass(hint) and (tag := _tag_of(hint)) else "object"
    return str(getattr(hint, "__name__", hint))
