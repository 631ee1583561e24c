"""What a model's chat template leaves open: variables that a request can set, and the day on which it is rendered."""

import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from notewriter.errors import UserError
from notewriter.models.checkpoints import check_model

logger = logging.getLogger(__name__)

Rendered = TypeVar("Rendered")
Clock = Callable[[str], str]

RENDERERS = {
    *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"),
    *("chat_template", "tokenize", "raise_exception", "strftime_now"),
}
"""Variables of a template that whoever renders it sets, and no user."""

DAYS = (datetime(2001, 2, 3, 4, 5, 6), datetime(2012, 11, 19, 20, 31, 42))
"""Two moments that differ in every part of date and time, the weekday too."""


def check_settings(settings: Mapping[str, Any], place: str = "chat_template_kwargs") -> None:
    """Check variables of a chat template that are to be sent with requests.

    Raises:
        UserError: no mapping, a value that JSON cannot hold (as a date that stands in YAML without quotes), or a name
            that is no variable's or that the renderer sets; begins with `place`.
    """
    if not isinstance(settings, Mapping):
        raise UserError(f"{place}: {settings!r} is not a mapping; write {{enable_thinking: false}}")
    for name, value in settings.items():
        if not str(name).isidentifier() or name in RENDERERS:
            raise UserError(f"{place}: {name} cannot be set; give variables of the chat template, as enable_thinking")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{place}: {name}: {value!r} is not text, a number, true or false; put a date into quotes"
            ) from error


def variables(template: str) -> frozenset[str]:
    """The names that a chat template leaves to a request, `enable_thinking` for one.

    They are read without having been set before; of those that it also sets itself, only the ones whose absence it
    provides for (`is defined`, `default`).
    """
    import jinja2.meta
    from jinja2 import nodes

    # A second is spent on this import, which commands that only reach endpoints do without.
    from transformers.utils.chat_template_utils import _compile_jinja_template

    tree: nodes.Template = _compile_jinja_template(template).environment.parse(template)
    assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    optional = {
        node.node.name
        for node in tree.find_all((nodes.Test, nodes.Filter))
        if node.name in {"defined", "undefined", "default", "d"} and isinstance(node.node, nodes.Name)
    }
    read = jinja2.meta.find_undeclared_variables(tree) - RENDERERS
    return frozenset(name for name in read - (assigned - optional) if not name.endswith("_token"))


def check_known(template: str, settings: Mapping[str, Any], model: str) -> None:
    """Check that the template of `model` has the variables that are set: vLLM ignores others silently.

    Raises:
        UserError: it has none of a name; lists those it has.
    """
    known = variables(template)
    for name in settings:
        if name not in known:
            there = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise UserError(f"chat_template_kwargs: the chat template of {model} has no variable {name}; {there}")


def preset(template: str, settings: Mapping[str, Any]) -> str:
    """A template in which variables have these values unless a request says otherwise.

    A checkpoint with this template is rendered as it was trained by whichever server it lies on.
    """
    lines = (
        f"{{%- if {name} is not defined %}}{{%- set {name} = {value!r} %}}{{%- endif %}}\n"
        for name, value in sorted(settings.items())
    )
    return "".join(lines) + template


def undated(render: Callable[[Clock], Rendered], template: str, model: str) -> Rendered:
    """What `render` makes of the template of `model`, given its `strftime_now`; today's date must not be in it.

    It is rendered a second time, on another day, where the template asks for the date.

    Raises:
        UserError: the date changes what is rendered; says how to fix it to one day.
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
        "it has no variable for it: copy the model's folder, write a fixed date in place of strftime_now(...) in its "
        "chat_template.jinja, and train and serve the copy"
    )


def check_served(model: str, settings: Mapping[str, Any], file: str | None = None) -> None:
    """Check the settings that a vLLM server of `model` is to get with every request, before it is started.

    `file` is a template that is served instead of the model's own (vLLM's option `chat_template`). A model whose
    tokenizer cannot be loaded here is left to the server.

    Raises:
        UserError: `model` is no model, or its template has no such variable, or writes today's date into prompts.
    """
    check_model(model)
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        if file is not None:
            tokenizer.chat_template = Path(file).read_text(encoding="utf-8")
    except Exception as error:  # of a tokenizer that it cannot load, the library raises anything
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        logger.warning("%s: its chat template cannot be read (%s) and is not checked", model, reason)
        return
    if tokenizer.chat_template is None:
        return
    template = tokenizer.get_chat_template()
    check_known(template, settings, model)
    messages = [{"role": "user", "content": "the town"}]

    def render(clock: Clock) -> str:
        options = dict(settings) | {"strftime_now": clock}
        try:
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options))
        except Exception as error:  # a template is a program and may fail with anything
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"{model}: its chat template refuses a question ({reason}); correct the template"
            ) from error

    undated(render, template, model)
