"""Checking plain data against annotations: mismatches are named with their place."""

from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from annotated_types import Interval, MinLen

from notewriter.ground.typed import misfit

ITSELF: list[Any] = []
ITSELF.append(ITSELF)


class Message(TypedDict):
    role: str
    content: str


@dataclass
class Search:
    query: str
    found: list[Message] = field(default_factory=list)
    kind: str = "search"


@dataclass
class Reply:
    text: str
    tokens: list[tuple[str, float]] | None = None
    kind: str = "reply"


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3, int),
        (3, float),
        (None, int | None),
        (["a"], list[str] | None),
        ({"a": [1, None, {"b": 0.5}]}, dict[str, Any]),
        ([["a", 1]], list[tuple[str, float]]),
        ((), tuple[str, ...]),
        ({"role": "user", "content": "", "more": 3}, Message),
        ({"role": "\ud83d", "content": "", "\ud83d": 3, 4: 5}, Message),
        ({"query": "x", "kind": "search", "more": 3}, Search | Reply),
        ({"text": "x", "kind": "reply", "tokens": [["a", -1]]}, Search | Reply),
        (1, Annotated[int, Interval(ge=1, le=1)]),
        (None, Annotated[int, Interval(ge=1)] | None),
    ],
)
def test_what_fits(value, hint):
    assert misfit(value, hint) == ""


@pytest.mark.parametrize(
    ("value", "hint", "problem"),
    [
        (True, int, "x must be int, not True"),
        (2.0, int, "x must be int, not 2.0"),
        (float("nan"), float, "x must be float, not nan"),
        ([1], int | None, "x must be int | None, not [1]"),
        (["a", 1], list[str], "x[1] must be str, not 1"),
        ({1: "a"}, dict[str, str], "the key 1 of x must be str, not 1"),
        ({"a": {"b": float("inf")}}, dict[str, Any], "x: a: b must be a finite number, not inf"),
        ({"a": b""}, dict[str, Any], "x: a must be a string, a number, true, false, a list or a mapping, not b''"),
        (ITSELF, list[Any], "x refers to itself or is nested too deeply"),
        (["a"], tuple[str, float], "x has no item 1"),
        ({"role": "user"}, Message, "x has no 'content'"),
        ([], Message, "x must be object, not []"),
        ({"kind": "search"}, Search | Reply, "x has no 'query'"),
        ({"query": "x", "kind": "search", "found": [{"role": "a"}]}, Search | Reply, "x: found[0] has no 'content'"),
        (
            {"query": "x", "kind": "dream"},
            Search | Reply,
            "x must be object of kind search | object of kind reply, not {'query': 'x', 'kind': 'dream'}",
        ),
        ({"text": "x", "kind": "reply", "tokens": [["a", "b"]]}, Reply, "x: tokens[0][1] must be float, not 'b'"),
        (0, Annotated[int, Interval(ge=1, le=9)], "x: 0 is too small; give at least 1 and at most 9"),
        (1.0, Annotated[float, Interval(gt=0, lt=1)], "x: 1.0 is too large; give above 0 and below 1"),
        (0, Annotated[int, Interval(ge=1)] | None, "x: 0 is too small; give at least 1"),
        ([], Annotated[list[str], MinLen(1)], "x: [] is too short; give at least 1"),
        ("a" * 99, int, f"x must be int, not '{'a' * 59}..."),
    ],
)
def test_what_does_not_fit_is_named(value, hint, problem):
    assert misfit(value, hint, "x") == problem
