"""A model's generation settings: transformers loads contradictory ones, but refuses to save them with the weights."""

import functools
import logging
import re

from transformers import AutoConfig, GenerationConfig

from notewriter.ground.errors import UserError, one_line
from notewriter.models.checkpoint import Checkpoint, load

logger = logging.getLogger(__name__)

FLAGGED = re.compile(r"^- `(\w+)`: (.*)$", re.MULTILINE)
"""How transformers lists the settings that it refuses to save, each with its reason."""


def settings_of(name: str, revision: str) -> GenerationConfig:
    """The generation settings that a model is loaded with: of generation_config.json, or of an old config.json.

    Raises:
        UserError: transformers cannot load them.
    """
    model = Checkpoint(name, revision).base
    try:
        return GenerationConfig.from_pretrained(model.path, revision=model.revision)
    except OSError:
        return GenerationConfig.from_model_config(load(AutoConfig, model.path, revision=model.revision))
    except (TypeError, ValueError) as error:
        raise UserError(f"{model.path}: generation_config.json: {one_line(error)}; copy or save it again") from error


def make_savable(settings: GenerationConfig, name: str) -> None:
    """Change a model's generation settings so that transformers saves them, and log the change.

    Sampling values without `do_sample: true`, as older chat models have them, get it: vLLM samples with them anyway.
    What else is refused has no effect as it stands, such as a length penalty without beams, and is left out.

    Raises:
        UserError: they are to sample at a temperature of 0.
    """
    flagged: dict[str, str] = {}
    try:
        settings.validate(strict=True)
    except ValueError as error:
        flagged = dict(FLAGGED.findall(str(error)))
    sampling = [setting for setting, reason in flagged.items() if reason.startswith("`do_sample`")]
    if sampling and settings.temperature == 0:
        raise UserError(
            f"{name}: its generation settings have {', '.join(sampling)} without do_sample: true, which transformers "
            "refuses to save, and a temperature of 0, at which nothing can be sampled; remove them from "
            "generation_config.json in a copy of its folder"
        )
    without_effect = [setting for setting in flagged if setting not in sampling]
    if sampling:
        settings.do_sample = True
    for setting in without_effect:
        setattr(settings, setting, None)
    changes = [f"do_sample: true beside {', '.join(sampling)}"] if sampling else []
    changes += [f"no {setting}, which has no effect" for setting in without_effect]
    if changes:
        _say(name, " and ".join(changes))


@functools.cache
def _say(name: str, changes: str) -> None:
    logger.info(
        "%s: transformers refuses to save its generation settings; those of the saved model have %s", name, changes
    )
