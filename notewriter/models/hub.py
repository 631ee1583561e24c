"""The questions to the Hugging Face Hub before any download: whether it can be reached and has a model."""

import logging

from notewriter.ground.errors import one_line

logger = logging.getLogger(__name__)

TIMEOUT = 5.0
"""Seconds to wait for the hub's first reply."""

OWNER = "HuggingFaceTB"
SMALLEST = "SmolLM2-135M-Instruct"


def commit_on_hub(name: str) -> str | None:
    """The newest commit of a model on the hub; None if the hub cannot be reached or has no such model."""
    from huggingface_hub import HfApi

    # The library's alias for the errors of whichever HTTP client its version uses.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        return HfApi().model_info(name, timeout=TIMEOUT).sha
    except (HTTPError, OSError) as error:
        logger.info("%s: cannot be reached on the Hugging Face Hub (%s)", name, one_line(error)[:200])
        return None
