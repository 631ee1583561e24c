"""The methods by name. Each is a folder: an async function that can retrieve and generate, its stages, its prompts."""

import difflib
import inspect
from collections.abc import Sequence
from typing import Any

from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.method import Method, Stage
from notewriter.methods import (
    chain_of_note,
    deepnote,
    direct,
    flare,
    in_context,
    ircot,
    iter_retgen,
    rat,
    react,
    rearag,
    renact,
    resp,
    search_o1,
    sure,
    vanilla,
)

METHODS: dict[str, Method] = {
    each.METHOD.name: each.METHOD
    for each in (
        direct,
        in_context,
        vanilla,
        chain_of_note,
        sure,
        iter_retgen,
        ircot,
        flare,
        rat,
        react,
        search_o1,
        rearag,
        renact,
        resp,
        deepnote,
    )
}

STAGES: dict[str, Stage] = {stage.name: stage for method in METHODS.values() for stage in method.stages}
"""Every stage of every method, by name."""


MOST = 1_000_000
"""Of passages, steps and whatever else a method counts; a number beyond it is a slip that would take days."""


def stage_named(name: str) -> Stage:
    """The stage of that name.

    Raises:
        UserError: there is none; names the most similar one.
    """
    if name not in STAGES:
        near = difflib.get_close_matches(str(name), STAGES, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"the stages are: {', '.join(STAGES)}"
        raise UserError(f"no stage {name!r}; {remedy}")
    return STAGES[name]


def check_index(method: Method, index: Sequence[str] | None) -> None:
    """Make sure that a method that retrieves has something to search.

    Raises:
        UserError: it does not.
    """
    if method.retrieves and not index:
        raise UserError(f"method {method.name} retrieves; add --index PATH (notewriter index builds one)")


def prepare(name: str, options: dict[str, Any]) -> Method:
    """The method of that name, once it is clear that it takes these options; no model is asked.

    Raises:
        UserError: an unknown method or option, a value of the wrong type or below one, or options that
            contradict each other.
    """
    method: Method = choose("method", name, METHODS)
    defaults = method.options
    for key, value in options.items():
        if key not in defaults:
            raise UserError(f"method {name} has no option {key!r}; it has: {', '.join(defaults)}")
        expected = type(defaults[key])
        # YAML writes a float of a whole number as an int.
        if type(value) is not expected and (expected, type(value)) != (float, int):
            raise UserError(f"method {name}: option {key} must be {expected.__name__}, not {value!r}")
        if expected is int and value < 1:
            raise UserError(f"method {name}: option {key} must be at least 1, not {value}")
        if expected is int and value > MOST:
            raise UserError(f"method {name}: option {key} must be at most {MOST:,}, not {value}")
    if method.check:
        chosen = defaults | options
        method.check(**{key: chosen[key] for key in inspect.signature(method.check).parameters})
    return method
