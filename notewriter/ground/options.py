"""The metadata of options, besides type, bound and help, and the rules that follow from them.

An option is a field of a dataclass (or a key of a mapping that the dataclass describes), made by `option` or `field`,
and its `metadata` has

- `help`: a line for `--help`;
- `effect` (default True): whether its value can change a result. Besides True and False it may be a function that
  returns the part of the value that can (None without any), or the name of an option: the value then has an effect
  only where that option is not set;
- `of` (default "run"): its owner, with which it is replaced: "model", "retriever", "questions" (a question file and
  the choice from it), "method", or "output" for a place to write to;
- `secret` (default False): whether its value must not be written anywhere;
- `names` (default None): a function that returns the names of plug-ins in its value (`ground/plugins.py`). A command
  imports these, since its user wrote them;
- `listed` (default False): whether a paper's table of hyper-parameters has it;
- `card` (default True): whether the card of training data lists it, on which others read it.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields
from types import MappingProxyType
from typing import Any

from notewriter.ground.plugins import is_place
from notewriter.ground.text import texts_in


def option(default: Any, help: str, **metadata: Any) -> Any:
    """The field of an option with a default that is no list or mapping; one without a default is a plain `field`."""
    return field(default=default, metadata={"help": help, **metadata})


DEFAULTS = {"effect": True, "of": "run", "secret": False, "names": None, "listed": False, "card": True, "plugins": None}
"""The metadata of an option without its own."""


def names_of(*kinds: Any, **sought: Any) -> frozenset[str]:
    """The options of dataclasses whose metadata have these values, as in `names_of(ModelArguments, of="model")`."""
    return frozenset(
        each.name
        for each in _fields(kinds)
        if all(each.metadata.get(key, DEFAULTS.get(key)) == value for key, value in sought.items())
    )


names_in = texts_in
"""For `names`: of an option that is a name, a list of names, or a mapping to them."""


def kinds_in(parts: Any) -> Iterator[str]:
    """For `names`: of a retriever, or of several by name; each of its parts has a key that names its kind."""
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, Mapping):
            yield from map(str, part)
            yield from (name for each in part.values() if isinstance(each, list) for name in kinds_in(each))


def places_in(arguments: Any) -> list[str]:
    """The names of places of objects in a dataclass's values (`names`)."""
    values = ((each.metadata.get("names"), getattr(arguments, each.name)) for each in fields(arguments))
    return [name for names, value in values if names for name in names(value) if is_place(name)]


def with_effect(settings: Mapping[str, Any], *kinds: Any) -> dict[str, Any]:
    """The settings that can change a result; `kinds` are the dataclasses whose options they are.

    A setting that no dataclass knows is kept.
    """
    effects = {each.name: each.metadata.get("effect", True) for each in _fields(kinds)}
    kept = {}
    for name, value in settings.items():
        effect = effects.get(name, True)
        if callable(effect):
            if (part := effect(value)) is not None:
                kept[name] = part
        elif not settings.get(effect) if isinstance(effect, str) else effect:
            kept[name] = value
    return kept


def where_set(value: Any) -> Any:
    """For `effect`: an option that is empty by default counts only if it is set; a run without it is unchanged."""
    return value or None


def defaults(*kinds: Any) -> dict[str, Any]:
    """The default values of the options of dataclasses."""
    values: dict[str, Any] = {}
    for each in _fields(kinds):
        if each.default is not MISSING:
            values[each.name] = each.default
        elif each.default_factory is not MISSING:
            values[each.name] = each.default_factory()
    return values


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """The settings in which a run's stored identity (`with_effect`) and another one differ, with both values.

    A setting that only one of the two has makes no difference where it is off or empty. Neither does one that only
    `now` has and leaves at its default: it is newer than the run, whatever its default is.
    """
    newer = {key for key, default in defaults.items() if key not in before and now.get(key) == default}
    return {
        key: (before.get(key), now.get(key))
        for key in {**before, **now}
        if before.get(key) != now.get(key)
        and (before.get(key) or now.get(key) or (key in before and key in now))
        and key not in newer
    }


def marked(kind: type, names: Iterable[str], **metadata: Any) -> None:
    """Add metadata to the fields with these names that a dataclass inherits from a library's, which keeps its own."""
    own: dict[str, Field[Any]] = kind.__dict__["__dataclass_fields__"]
    for name in own.keys() & set(names):
        own[name] = copy.copy(own[name])
        own[name].metadata = MappingProxyType({**own[name].metadata, **metadata})


def _fields(kinds: Iterable[Any]) -> Iterable[Field[Any]]:
    return (each for kind in kinds for each in fields(kind))
