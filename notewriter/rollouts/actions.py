"""Parsing the steps of models that reason and act: thought, action and observation, as in ReAct and ReaRAG.

Replies are data and are never evaluated.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from notewriter.ground.text import without_surrogates
from notewriter.models.thoughts import after_thinking
from notewriter.rollouts.parsing import json_at


class Action(NamedTuple):
    """A step of a model that reasons and acts: its thought, the function it calls, and the argument."""

    thought: str
    name: str
    argument: str


# With a colon, or alone in its line; in a list, too.
_LABEL = r"(?:[ \t]*(?:[-*>]|\d{{1,2}}[.)])[ \t]+)?[ \t*_#]*{}(?:[ \t]*\d+)?[ \t*_]*(?:[:\uff1a][ \t*_]*|$)"
# Models that think in Chinese label in it, too.
_THOUGHT = re.compile(rf"\A(?:{_LABEL.format('(?:Thought|思考)')})+", re.IGNORECASE | re.MULTILINE)
_ACTION = re.compile("^" + _LABEL.format("Action"), re.IGNORECASE | re.MULTILINE)
_ACTION_IN_LINE = re.compile(r"\bAction(?:[ \t]*\d+)?[ \t*_]*[:\uff1a][ \t*_]*", re.IGNORECASE)
# Within a line: capitalised, so that "I take this action:" remains, and right before a call.
_ACTION_OF_CALL = re.compile(
    rf"(?i:^{_LABEL.format('(?:Action|行动|动作)')})"
    r"|[*_]{0,3}(?<![^\W_])(?:Action|ACTION|行动|动作)(?:[ \t]*\d+)?[ \t*_]*[:\uff1a][ \t*_]*(?=\s*(?:```\w*\s*)?\{)",
    re.MULTILINE,
)
_OBSERVATION = re.compile("^" + _LABEL.format("Observation"), re.IGNORECASE | re.MULTILINE)
_PART = re.compile("^" + _LABEL.format("(Thought|Action|Observation)"), re.IGNORECASE | re.MULTILINE)
_BRACE = re.compile(r"\{")
_FENCE = re.compile(r"```\w*\s*$")
# The argument ends at the first quote followed by a brace, so that it may contain other quotes.
_LOOSE_CALL = re.compile(
    r"""\{\s*["']?(?:function|name)["']?\s*:\s*["']?(\w+)["']?\s*,\s*["']?(?:parameters|arguments)["']?\s*:\s*"""
    r"""\{\s*["']?(\w+)["']?\s*:\s*(["'])(.*?)\3[\s,]*\}""",
    re.DOTALL,
)
# Not `"Alpha" and "Beta"`, whose outer marks are no pair.
_QUOTED = re.compile(r"""(?:\w+\s*=\s*)?(?:"([^"]+)"|'([^']+)'|`([^`]+)`|\u201c([^\u201d]+)\u201d)""")
_ESCAPED = re.compile(r"""\\(["'\\])""")


def parse_action(text: str, actions: Mapping[str, str]) -> Action | None:
    """The first thought and action of a reply such as `Thought: ... Action: {"function": ..., "parameters": {...}}`.

    `actions` maps the name of each function to that of its only parameter. Labels may be missing, numbered or headings,
    the thought may be missing, and code fences, single quotes, a missing final brace and trailing text are accepted. Of
    a list, the argument is its items, with commas between them; of a boolean, yes or no. Thinking is skipped, and so is
    everything from an observation on, which models invent when they are not stopped.
    Returns None if there is no such action.
    """
    text = _without_observations(text)
    label = _ACTION_OF_CALL.search(text)
    for match in _BRACE.finditer(text, label.end() if label else 0):
        call = _call(text, match.start(), actions)
        if call:
            return Action(_thought(text[: label.start() if label else match.start()]), *call)
    return None


def parse_call(text: str, names: Sequence[str]) -> Action | None:
    """The first thought and action of a reply such as `Thought: ... Action: search[who built it]`.

    `names` are the known functions. As lenient as `parse_action`; parentheses are accepted for brackets, with the
    parameter's name before a quoted argument, and an unclosed one ends with its line. Returns None if there is no such
    action.
    """
    text = _without_observations(text)
    label = _ACTION.search(text) or _ACTION_IN_LINE.search(text)
    # Without a label a call must start its line, since a thought may mention one.
    before = r"\b" if label else r"^[ \t*_`>-]*"
    pattern = re.compile(rf"{before}({'|'.join(names)})[ \t*_`]*([\[(\u3010])", re.IGNORECASE | re.MULTILINE)
    for match in pattern.finditer(text, label.end() if label else 0):
        argument = _within_brackets(text[match.end() :], match[2])
        if argument:
            return Action(_thought(text[: label.start() if label else match.start()]), match[1].lower(), argument)
    return None


def _within_brackets(text: str, opening: str) -> str:
    """The text up to the matching closing bracket, or else to the end of the line, without surrounding quotes."""
    closing = {"[": "]", "(": ")", "\u3010": "\u3011"}[opening]
    depth, end = 1, len(text.partition("\n")[0])
    for place, character in enumerate(text):
        depth += (character == opening) - (character == closing)
        if depth == 0:
            end = place
            break
    argument = text[:end].strip()
    quoted = _QUOTED.fullmatch(argument)
    return next(filter(None, quoted.groups())).strip() if quoted else argument


def _thought(text: str) -> str:
    """The text before an action, without its label and the opening fence of the action's code block."""
    return _FENCE.sub("", _THOUGHT.sub("", text.strip())).strip()


def _without_observations(text: str) -> str:
    """A reply without its thinking and without invented observations."""
    return _OBSERVATION.split(after_thinking(without_surrogates(text)), maxsplit=1)[0]


def parse_steps(text: str, actions: Mapping[str, str], last: str) -> list[tuple[Action, str]] | None:
    """Parse a whole chain written in one reply: each action (see `parse_action`) with its observation.

    It ends with the first call of the function `last`, whose observation is empty; the rest is ignored. Returns None
    unless labelled thoughts, actions and observations alternate until then.
    """
    _, *parts = _PART.split(after_thinking(without_surrogates(text)))
    labels = [label.lower() for label in parts[::2]]
    texts = [part.strip() for part in parts[1::2]]
    steps: list[tuple[Action, str]] = []
    for start in range(0, len(labels), 3):
        action = parse_action(texts[start + 1], actions) if labels[start : start + 2] == ["thought", "action"] else None
        if action is None:
            return None
        action = action._replace(thought=texts[start])
        if action.name == last:
            return [*steps, (action, "")]
        if labels[start + 2 : start + 3] != ["observation"]:
            return None
        steps.append((action, texts[start + 2]))
    return steps


def _call(text: str, start: int, actions: Mapping[str, str]) -> tuple[str, str] | None:
    """The name and argument of the function call that begins at `start`."""
    try:
        value = json_at(text, start)
        name = value.get("function", value.get("name")).lower()
        argument = value.get("parameters", value.get("arguments", value))[actions[name]]
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        match = _LOOSE_CALL.match(text, start)
        if not match or actions.get(match[1].lower()) != match[2]:
            return None
        name, argument = match[1].lower(), _ESCAPED.sub(r"\1", match[4])
    except (AttributeError, KeyError, TypeError):  # some other object
        return None
    items = argument if isinstance(argument, list) else [argument]
    if not all(isinstance(item, str | int | float) for item in items):
        return None
    text = without_surrogates(", ".join(map(_as_text, items))).strip()
    return (name, text) if text else None


def _as_text(value: str | float) -> str:
    """A text or number as it stands, and a boolean as the answer that it is to a question."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
