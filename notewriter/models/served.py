"""vLLM's options that follow from the served model, so that its prompts are those of training."""

import functools
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from notewriter.models import chat_template
from notewriter.models.checkpoint import Checkpoint, is_hub_id
from notewriter.models.dialects import NEUTRAL
from notewriter.models.hub import check_at_hand
from notewriter.models.tokenizer import check_served

logger = logging.getLogger(__name__)


def options_of(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A user's options of vLLM for a model over those that follow from its files.

    - `chat_template_content_format: string`, where the template writes texts: vLLM makes lists of parts of them for a
      template that takes both, and some write these otherwise than texts. One that takes lists alone is left to vLLM.
    - `default_chat_template_kwargs`, behind a reasoning parser: the values that the template's variables of thinking
      have without a request. The parsers go by these variables, not by the prompt.
    - `override_generation_config`: the neutral value of each of `NEUTRAL` that the model's generation_config.json
      sets. `generation_config` in the user's options keeps the model's own.

    Raises:
        UserError: the model, or the base of an adapter, is neither here nor on the hub; or the tokenizer's class makes
            other tokens than its file (`check_served`).
    """
    if not (Checkpoint(model).folder.is_dir() or is_hub_id(model)):
        return dict(options)
    base = Checkpoint(model).base
    if is_hub_id(base.path) and not base.folder.is_dir():
        check_at_hand(base.path, base.revision)
    check_served(Checkpoint(model).tokenizer)
    ours = _of_template(model, options.get("chat_template"), bool(options.get("reasoning_parser")))
    if "generation_config" not in options:
        ours |= _of_sampling(model)
    together = {**ours, **options}
    for name in ("default_chat_template_kwargs", "override_generation_config"):
        if isinstance(ours.get(name), dict) and isinstance(options.get(name), dict):
            together[name] = ours[name] | options[name]
    return together


def _of_template(model: str, file: Any, parses: bool) -> dict[str, Any]:
    try:
        tokenizer = chat_template.served_tokenizer(Checkpoint(model).tokenizer, file)
        template = tokenizer.get_chat_template()

        def render(settings: Mapping[str, Any]) -> str:
            return chat_template.probe(tokenizer, settings, model)

        options: dict[str, Any] = {}
        if chat_template.PROBE in render({}):
            options["chat_template_content_format"] = "string"
        if parses and (values := chat_template.values_of_thinking(template, render)):
            options["default_chat_template_kwargs"] = values
    # `check_template` has reported or refused it already, or vLLM will.
    except Exception as error:
        logger.debug("%s: no options follow from its chat template: %s", model, error)
        return {}
    return options


@functools.cache
def _of_sampling(model: str) -> dict[str, Any]:
    base = Checkpoint(model).base
    try:
        settings = json.loads(_generation_config(base).read_text(encoding="utf-8"))
        own = {name: settings[name] for name in NEUTRAL if settings.get(name) not in (None, 0, NEUTRAL[name])}
    # The model has no such file, or a damaged one, at which vLLM stops.
    except (OSError, ValueError, AttributeError):
        return {}
    if not own:
        return {}
    logger.info(
        "%s: served without %s of its generation_config.json, which no option of the run names; serve_options: "
        "{generation_config: auto} keeps what the file says",
        base.path,
        ", ".join(f"{name} {value}" for name, value in own.items()),
    )
    return {"override_generation_config": {name: NEUTRAL[name] for name in own}}


def _generation_config(base: Checkpoint) -> Path:
    """The file of a folder, or of a model on the hub, from where it is downloaded.

    Raises:
        OSError: there is none.
    """
    if base.folder.is_dir():
        return base.folder / "generation_config.json"
    from transformers.utils import cached_file

    return Path(str(cached_file(base.path, "generation_config.json", revision=base.revision)))
