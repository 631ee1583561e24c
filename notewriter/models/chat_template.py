"""Chat templates: the variables that requests can set, and checks that no template writes today's date."""

import contextlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from notewriter.ground.errors import UserError, one_line
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.tokenizer import load_tokenizer

logger = logging.getLogger(__name__)

Rendered = TypeVar("Rendered")
Clock = Callable[[str], str]

RENDERERS = {
    "messages", "tools", "documents", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize", "raise_exception", "strftime_now",
}  # fmt: skip
"""Template variables that the renderer sets, which users cannot."""

DAYS = (datetime(2001, 2, 3, 4, 5, 6), datetime(2012, 11, 19, 20, 31, 42))
"""Two dates that differ in every part of date and time, including the weekday."""


def check_settings(settings: Mapping[str, Any], place: str = "chat_template_kwargs") -> None:
    """Check chat template variables that will be sent with requests.

    Raises:
        UserError: not a mapping, a value that JSON cannot represent (such as an unquoted date in YAML), or a name
            that is not an identifier or is set by the renderer; begins with `place`.
    """
    if not isinstance(settings, Mapping):
        raise UserError(f"{place}: {settings!r} is not a mapping; write {{enable_thinking: false}}")
    for name, value in settings.items():
        if not str(name).isidentifier() or name in RENDERERS:
            raise UserError(f"{place}: {name} cannot be set; use variables of the template, such as enable_thinking")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{place}: {name}: {value!r} is not a string, a number, true or false; put dates in quotes"
            ) from error


def variables(template: str) -> frozenset[str]:
    """The variables of a chat template that a request can set, such as `enable_thinking`.

    These are the names it reads without setting them; a name it also sets counts only if the template handles its
    absence (`is defined`, `default`).
    """
    import jinja2.meta
    from jinja2 import nodes

    tree = _parsed(template)
    assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    optional = {
        node.node.name
        for node in tree.find_all((nodes.Test, nodes.Filter))
        if node.name in {"defined", "undefined", "default", "d"} and isinstance(node.node, nodes.Name)
    }
    read = jinja2.meta.find_undeclared_variables(tree) - RENDERERS
    return frozenset(name for name in read - (assigned - optional) if not name.endswith("_token"))


def templates_of(tokenizer: Any, model: str) -> dict[str, str]:
    """The chat templates of a tokenizer: `default`, and those for other uses by their names, such as `tool_use`.

    Raises:
        UserError: it has some, and none is the default.
    """
    templates = tokenizer.chat_template
    if templates is None or isinstance(templates, str):
        return {"default": templates} if templates else {}
    if "default" not in templates:
        raise UserError(
            f"{model}: has the chat templates {', '.join(sorted(templates))}, and none of them is the default; copy "
            "the right one to chat_template.jinja in the model's folder"
        )
    return dict(templates)


def check_known(template: str, settings: Mapping[str, Any], model: str) -> None:
    """Check that the template of `model` has the variables being set; vLLM silently ignores unknown ones.

    Raises:
        UserError: the template lacks a variable; lists those it has.
    """
    there = variables(template)
    for name in settings:
        if name not in there:
            raise UserError(
                f"chat_template_kwargs: the chat template of {model} has no variable {name}; it has "
                f"{', '.join(sorted(there)) or 'none'}"
            )


def preset(template: str, settings: Mapping[str, Any]) -> str:
    """A template in which variables default to these values; requests can still override them.

    Any server then renders the checkpoint's prompts as they were in training.
    """
    lines = (
        f"{{%- if {name} is not defined %}}{{%- set {name} = {value!r} %}}{{%- endif %}}\n"
        for name, value in sorted(settings.items())
    )
    return "".join(lines) + template


THINKING = re.compile("think|reason|effort")
"""Names of variables that switch a model's thoughts on and off, or set their length."""

PROBE = "the town"
"""A user's message that shows how a template renders one."""


def values_of_thinking(template: str, render: Callable[[Mapping[str, Any]], str]) -> dict[str, Any]:
    """The values of a template's variables of thinking where a request sets none: preset, or by their effect.

    `render` writes the prompt of `PROBE` with such variables.
    """
    written = presets(template)
    values: dict[str, Any] = {}
    for name in sorted(filter(THINKING.search, variables(template))):
        if name in written:
            values[name] = written[name]
            continue
        shown: dict[Any, str] = {}
        for value in (False, True, "other"):
            # It may refuse some.
            with contextlib.suppress(UserError):
                shown[value] = render({name: value})
        by_prompt = {shown[value]: value for value in (False, True) if value in shown}
        # Else it is no switch.
        if len(by_prompt) > 1 and shown.get("other", shown[True]) in by_prompt and (unset := render({})) in by_prompt:
            values[name] = by_prompt[unset]
    return values


def presets(template: str) -> dict[str, Any]:
    """The values that a template itself gives to variables that are not defined, by `preset` or in other words."""
    from jinja2 import nodes

    tree = _parsed(template)
    found: list[tuple[str, Any]] = [
        (each.node.name, each.args[0])
        for each in tree.find_all(nodes.Filter)
        if each.name in {"default", "d"} and isinstance(each.node, nodes.Name) and each.args
    ]
    for branch in tree.find_all((nodes.If, nodes.CondExpr)):
        negated = isinstance(branch.test, nodes.Not)
        test: Any = branch.test.node if isinstance(branch.test, nodes.Not) else branch.test
        if not isinstance(test, nodes.Test) or test.name not in {"defined", "undefined"}:
            continue
        name, where_absent = getattr(test.node, "name", ""), negated == (test.name == "defined")
        if isinstance(branch, nodes.CondExpr):
            found.append((name, branch.expr1 if where_absent else branch.expr2))
        elif where_absent:
            given = [each for each in branch.body if isinstance(each, nodes.Assign)]
            found += [(name, each.node) for each in given if getattr(each.target, "name", "") == name]
    values: dict[str, Any] = {}
    for name, value in found:
        with contextlib.suppress(nodes.Impossible, AttributeError):
            values.setdefault(name, value.as_const())
    return values


def _parsed(template: str) -> Any:
    """The syntax tree of a template."""
    # This import takes a second, which commands that only call endpoints should not pay.
    from transformers.utils.chat_template_utils import _compile_jinja_template

    return _compile_jinja_template(template).environment.parse(template)


def undated(render: Callable[[Clock], Rendered], template: str, model: str) -> Rendered:
    """The result of `render(strftime_now)` for the template of `model`, which must not depend on today's date.

    A template that calls `strftime_now` is rendered a second time with another date.

    Raises:
        UserError: the date changes the result; names the way to set a fixed date.
    """
    asked = False

    def clock(day: datetime) -> Clock:
        def strftime_now(form: str) -> str:
            nonlocal asked
            asked = True
            return day.strftime(form)

        return strftime_now

    rendered = render(clock(DAYS[0]))
    if asked and render(clock(DAYS[1])) != rendered:
        raise UserError(f"{model}: its chat template writes today's date into prompts; {_remedy(template)}")
    return rendered


def _remedy(template: str) -> str:
    dates = sorted(name for name in variables(template) if "date" in name)
    if dates:
        return (
            f'set chat_template_kwargs: {{{dates[0]}: "26 Jul 2024"}}, or another fixed date, for training and serving'
        )
    return (
        "it has no variable for the date: copy the model's folder, replace strftime_now(...) with a fixed date in its "
        "chat_template.jinja, and train and serve the copy"
    )


def check_template(model: str, settings: Mapping[str, Any], file: str | None = None) -> None:
    """Check the chat template of `model` against the variables set, before a vLLM server is started for it.

    `file` is a template served instead of the model's own (vLLM's option `chat_template`). If the tokenizer cannot be
    loaded here, the check is skipped with a warning.

    Raises:
        UserError: `model` is not a model, its template lacks a variable, or it writes today's date into prompts.
    """
    if not Checkpoint(model).is_adapter:
        Checkpoint(model).check()
    try:
        tokenizer = served_tokenizer(model, file)
    except Exception as error:  # the library raises anything for a tokenizer it cannot load
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        logger.warning("%s: its chat template cannot be read (%s) and was not checked", model, reason)
        return
    if (template := templates_of(tokenizer, model).get("default")) is None:
        return
    check_known(template, settings, model)
    undated(lambda clock: probe(tokenizer, dict(settings) | {"strftime_now": clock}, model), template, model)


def served_tokenizer(model: str, file: str | None = None) -> Any:
    """The tokenizer of a model with the chat template that it is served with: `file`, or its own."""
    tokenizer: Any = load_tokenizer(model)
    if file is not None:
        tokenizer.chat_template = Path(file).read_text(encoding="utf-8")
    return tokenizer


def probe(tokenizer: Any, settings: Mapping[str, Any], model: str) -> str:
    """The prompt that a template makes of a user's message `PROBE`.

    Raises:
        UserError: it fails.
    """
    try:
        return str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": PROBE}], tokenize=False, add_generation_prompt=True, **settings
            )
        )
    except Exception as error:  # a template is a program and can raise anything
        raise UserError(
            f"{model}: its chat template fails on a user message ({one_line(error)[:200]}); fix the template"
        ) from error
