"""Type annotations of dataclasses and typed dictionaries, and what the errors about their values are marked with."""

import functools
from typing import Any, get_args, get_type_hints

from annotated_types import MinLen

UNION = "|"
"""The first character of a union member's label, by which errors recognise the label and leave it out."""

MISFIT = "misfit"
"""The type of pydantic's error whose text is what is wanted, such as `list[str]`."""


def hints_of(kind: Any) -> dict[str, Any]:
    """The annotations of a dataclass or a typed dictionary, including `Annotated` metadata."""
    return _hints_of(kind)


@functools.cache
def _hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def may_be_empty(hint: Any) -> bool:
    """Whether an annotation allows empty strings: `MinLen(0)`."""
    return any(part == MinLen(0) or may_be_empty(part) for part in get_args(hint))
