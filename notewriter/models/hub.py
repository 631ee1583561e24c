"""The questions to the Hugging Face Hub before any download: whether it can be reached and has a model."""

import logging

from notewriter.ground.errors import UserError, one_line

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


def check_at_hand(name: str, revision: str) -> None:
    """Check that a model is in the hub's local cache, or that the hub has it; a server takes minutes to find out.

    Raises:
        UserError: neither.
    """
    from huggingface_hub import try_to_load_from_cache

    # Of a model in Mistral's own format, params.json.
    cached = (try_to_load_from_cache(name, file, revision=revision) for file in ("config.json", "params.json"))
    if not any(isinstance(path, str) for path in cached) and not commit_on_hub(name):
        raise UserError(
            f"{name}: is not in the Hub's cache of this machine, and the Hub cannot be reached or has no such model; "
            f"check the name, or run `notewriter fetch model {name} --output_dir FOLDER` on a machine with the "
            "internet, copy the folder here and name it in place of the model"
        )
