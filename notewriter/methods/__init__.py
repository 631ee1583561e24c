"""The methods by name. Each is one async function that can retrieve and generate, in a file of its own."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.methods.deepnote import check_options, deepnote
from notewriter.methods.direct import direct
from notewriter.methods.rearag import rearag
from notewriter.methods.vanilla import vanilla

Method = Callable[..., Awaitable[str]]

METHODS: dict[str, Method] = {"direct": direct, "vanilla": vanilla, "deepnote": deepnote, "rearag": rearag}


def prepare(name: str, options: dict[str, Any]) -> Method:
    """The method of that name, after a check that it takes the options, before any model is asked.

    Raises:
        UserError: an unknown method or option, a value of the wrong type or below one, or options that
            contradict each other.
    """
    method: Method = choose("method", name, METHODS)
    known = {
        parameter.name: parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for key, value in options.items():
        if key not in known:
            raise UserError(f"method {name} has no option {key!r}; it has: {', '.join(known)}")
        expected = type(known[key].default)
        if type(value) is not expected:
            raise UserError(f"method {name}: option {key} must be {expected.__name__}, not {value!r}")
        if expected is int and value < 1:
            raise UserError(f"method {name}: option {key} must be at least 1, not {value}")
    if name == "deepnote":
        checked = ("max_step", "max_failure", "adaptive_retrieval", "initial_note")
        check_options(*(options.get(key, known[key].default) for key in checked))
    return method
