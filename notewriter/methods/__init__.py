"""The methods by name. Each is one async function that can retrieve and generate, in a file of its own."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.methods.chain_of_note import chain_of_note
from notewriter.methods.deepnote import check_options as check_deepnote
from notewriter.methods.deepnote import deepnote
from notewriter.methods.direct import direct
from notewriter.methods.flare import check_options as check_flare
from notewriter.methods.flare import flare
from notewriter.methods.in_context import in_context
from notewriter.methods.ircot import ircot
from notewriter.methods.iter_retgen import iter_retgen
from notewriter.methods.rat import rat
from notewriter.methods.react import react, renact
from notewriter.methods.rearag import rearag
from notewriter.methods.resp import resp
from notewriter.methods.search_o1 import search_o1
from notewriter.methods.sure import sure
from notewriter.methods.vanilla import vanilla

Method = Callable[..., Awaitable[str]]

METHODS: dict[str, Method] = {
    "direct": direct,
    "in_context": in_context,
    "vanilla": vanilla,
    "chain_of_note": chain_of_note,
    "sure": sure,
    "iter_retgen": iter_retgen,
    "ircot": ircot,
    "flare": flare,
    "rat": rat,
    "react": react,
    "search_o1": search_o1,
    "rearag": rearag,
    "renact": renact,
    "resp": resp,
    "deepnote": deepnote,
}

CHECKS: dict[str, Callable[..., None]] = {"deepnote": check_deepnote, "flare": check_flare}
"""Method -> a function of some of its options that raises UserError where they cannot hold together."""


def options_of(method: Method) -> dict[str, Any]:
    """A method's options with their defaults: its parameters behind the star."""
    parameters = inspect.signature(method).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}


def retrieves(method: Method) -> bool:
    """Whether a method retrieves, and so needs an index: it can be told how many passages."""
    return "top_k" in options_of(method)


def check_index(name: str, method: Method, index: Sequence[str] | None) -> None:
    """Make sure that a method that retrieves has something to search.

    Raises:
        UserError: it has not.
    """
    if retrieves(method) and not index:
        raise UserError(f"method {name} retrieves; add --index PATH (notewriter index builds one)")


def prepare(name: str, options: dict[str, Any]) -> Method:
    """The method of that name, after a check that it takes the options, before any model is asked.

    Raises:
        UserError: an unknown method or option, a value of the wrong type or below one, or options that
            contradict each other.
    """
    method: Method = choose("method", name, METHODS)
    defaults = options_of(method)
    for key, value in options.items():
        if key not in defaults:
            raise UserError(f"method {name} has no option {key!r}; it has: {', '.join(defaults)}")
        expected = type(defaults[key])
        # YAML writes a float of a whole number as an int.
        if type(value) is not expected and (expected, type(value)) != (float, int):
            raise UserError(f"method {name}: option {key} must be {expected.__name__}, not {value!r}")
        if expected is int and value < 1:
            raise UserError(f"method {name}: option {key} must be at least 1, not {value}")
    if check := CHECKS.get(name):
        chosen = defaults | options
        check(**{key: chosen[key] for key in inspect.signature(check).parameters})
    return method
