"""Reading what a model that reasons and acts does next: thought, action and observation, as ReAct and ReaRAG have them.

A reply is data: whatever it holds, it is never evaluated.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from notewriter.rollouts.parsing import after_thinking
from notewriter.text import without_surrogates


class Action(NamedTuple):
    """What a model that reasons and acts does next: its thought, the function that it calls, and the argument."""

    thought: str
    name: str
    argument: str


_LABEL = r"[ \t*_#]*{}(?:[ \t]*\d+)?[ \t*_]*:[ \t*_]*"
_THOUGHT = re.compile(rf"\A(?:{_LABEL.format('Thought')})+", re.IGNORECASE)
_ACTION = re.compile("^" + _LABEL.format("Action"), re.IGNORECASE | re.MULTILINE)
_ACTION_IN_LINE = re.compile(r"\bAction(?:[ \t]*\d+)?[ \t*_]*:[ \t*_]*", re.IGNORECASE)
_OBSERVATION = re.compile("^" + _LABEL.format("Observation"), re.IGNORECASE | re.MULTILINE)
_PART = re.compile("^" + _LABEL.format("(Thought|Action|Observation)"), re.IGNORECASE | re.MULTILINE)
_BRACE = re.compile(r"\{")
_FENCE = re.compile(r"```\w*\s*$")
# The text of the argument ends at the first quote with a brace after it, so that other quotes may stand in it.
_LOOSE_CALL = re.compile(
    r"""\{\s*["']?(?:function|name)["']?\s*:\s*["']?(\w+)["']?\s*,\s*["']?(?:parameters|arguments)["']?\s*:\s*"""
    r"""\{\s*["']?(\w+)["']?\s*:\s*(["'])(.*?)\3[\s,]*\}""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"""\\(["'\\])""")


def parse_action(text: str, actions: Mapping[str, str]) -> Action | None:
    """The first thought and action of a reply such as `Thought: ... Action: {"function": ..., "parameters": {...}}`.

    `actions` maps the name of each function to that of its one parameter. Read are also replies without labels
    or with numbered ones, without a thought, in code fences, with single quotes, with a brace missing at the end,
    with text after it. Thinking is passed over, and so is everything from an observation on, which a model makes
    up when it is not stopped. None where there is no such action.
    """
    text = _own_words(text)
    label = _ACTION.search(text)
    for match in _BRACE.finditer(text, label.end() if label else 0):
        call = _call(text, match.start(), actions)
        if call:
            return Action(_thought(text[: label.start() if label else match.start()]), *call)
    return None


def parse_call(text: str, names: Sequence[str]) -> Action | None:
    """The first thought and action of a reply such as `Thought: ... Action: search[who built it]`.

    `names` are the functions there are. What `parse_action` reads past is read past here; parentheses do for
    brackets, and the end of the line for one that is not closed. None where there is no such action.
    """
    text = _own_words(text)
    label = _ACTION.search(text) or _ACTION_IN_LINE.search(text)
    # Without a label a call stands at the beginning of a line, since a thought may well speak of one.
    before = r"\b" if label else r"^[ \t*_`>-]*"
    pattern = re.compile(rf"{before}({'|'.join(names)})[ \t*_`]*([\[(])", re.IGNORECASE | re.MULTILINE)
    for match in pattern.finditer(text, label.end() if label else 0):
        argument = _within_brackets(text[match.end() :], match[2])
        if argument:
            return Action(_thought(text[: label.start() if label else match.start()]), match[1].lower(), argument)
    return None


def _within_brackets(text: str, opening: str) -> str:
    """The text up to the bracket that closes the one before it, or to the end of the line; without quotes around it."""
    closing = {"[": "]", "(": ")"}[opening]
    depth, end = 1, len(text.partition("\n")[0])
    for place, character in enumerate(text):
        depth += (character == opening) - (character == closing)
        if depth == 0:
            end = place
            break
    argument = text[:end].strip()
    if len(argument) > 1 and argument[0] == argument[-1] and argument[0] in "\"'`":
        argument = argument[1:-1].strip()
    return argument


def _thought(text: str) -> str:
    """What stands before an action, without its label and without the fence that opens the action's own code."""
    return _FENCE.sub("", _THOUGHT.sub("", text.strip())).strip()


def _own_words(text: str) -> str:
    """A reply without what the model told itself first, and without observations that it made up."""
    return _OBSERVATION.split(after_thinking(without_surrogates(text)), maxsplit=1)[0]


def parse_steps(text: str, actions: Mapping[str, str], last: str) -> list[tuple[Action, str]] | None:
    """A whole chain that was written at once: each action (see `parse_action`) with its observation.

    It ends with the first call of the function `last`, whose observation is empty; what comes after it is passed
    over. None unless thought, action and observation follow each other until then, each with its label.
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
    """The function call that begins at `start`, as the function's name and its argument."""
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
        name = value.get("function", value.get("name")).lower()
        argument = value.get("parameters", value.get("arguments", value))[actions[name]]
    except (ValueError, RecursionError):  # it is no JSON, or nested too deeply
        match = _LOOSE_CALL.match(text, start)
        if not match or actions.get(match[1].lower()) != match[2]:
            return None
        name, argument = match[1].lower(), _ESCAPED.sub(r"\1", match[4])
    except (AttributeError, KeyError, TypeError):  # it is another object
        return None
    if isinstance(argument, int | float) and not isinstance(argument, bool):
        argument = str(argument)
    if not isinstance(argument, str) or not argument.strip():
        return None
    return name, without_surrogates(argument).strip()
